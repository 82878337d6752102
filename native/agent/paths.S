/*
 * The entry path and the return path: what a traced call costs.
 *
 * Nothing here may change what the program can see: every register and the flags are as they were, at both ends (callers
 * built with -fipa-ra rely on registers that a callee is known to leave alone; r10 carries static chains; hand-written
 * assembly returns results in the carry flag). Below rsp there are 128 bytes that at an entry and at a return belong to
 * nobody, and signals respect them: that is where registers are kept.
 *
 * Entry, rsp = slot:                       Return, rsp = slot + 8:
 *     slot -  8  nothing                       rsp -  8  the slot
 *     slot - 16  rax                           rsp - 16  rax
 *     slot - 24  rdx                           rsp - 24  rdx
 *     slot - 32  rcx                           rsp - 32  rsi
 *     slot - 40  flags (lahf, seto)            rsp - 40  rcx (saved by the site)
 *     slot - 48  r11 (saved and restored by    rsp - 48  flags
 *                the thunk)
 *     slot - 56  rbp (slow path)               rsp - 56  rdi
 *                                              rsp - 64  rbp (slow path)
 *
 * The slow paths count from rbp, not from another register that calls preserve: elfutils forgets rbx in frames whose
 * unwind information does not mention it (libdw 0.188, backends/x86_64_cfi.c).
 */
#include "state.h"
#include "unwind.h"
    .intel_syntax noprefix
    .text

    .macro SAVE_FLAGS place                  /* into al, ah and the place; rax must be saved already */
    lahf
    seto al
    mov [rsp + \place], ax
    .endm

    .macro RESTORE_FLAGS place               /* by way of rax */
    movzx eax, word ptr [rsp + \place]
    add al, 127                              /* overflows if al was 1 */
    sahf
    .endm

/*
 * The state of this thread, or off to `without`: for a new thread (0), for one that shares its TLS with another (1), and,
 * where the state is found by the gs base, for one that has merely inherited it from the thread that made it.
 */
    .macro THREAD register, scratch, without
#ifdef SG_THREAD_BY_GS
    rdgsbase \register
    cmp \register, 1
    jbe \without
    mov \scratch, fs:[0]                      /* the thread control block knows its own address */
    cmp \scratch, [\register + THREAD_CONTROL_BLOCK]
    jne \without
#else
    mov \register, [rip + sg_thread@GOTTPOFF]
    mov \register, fs:[\register]
    cmp \register, 1
    jbe \without
#endif
    .endm

/*
 * To the frame's site. One indirect jump for all frames is mispredicted as soon as calls nest three deep (measured:
 * 24 to 26 instead of 19 ns a call in recursion and chains; bench/call_cost.py). Jumps that hang on bits of the frame's
 * number are not, and leave few targets to each of eight indirect ones.
 */
    .macro TO_SITE
    RESTORE_FLAGS -40
    mov rax, [rsp - 16]
    mov rdx, [rsp - 24]
    .cfi_remember_state
    lea rsp, [rsp + 8]
    .cfi_def_cfa rsp, 8
    CALLER_RSP
    RETURN_ADDRESS_IN_SLOT
    jmp [rcx + FRAME_SITE]
    .cfi_restore_state
    .endm

    .macro TO_SITE_BY_BIT register, mask, next:vararg
    test \register, \mask
    jne .Lodd\@
    \next
.Lodd\@:
    \next
    .endm

    .macro SAVE_AT_ENTRY
    mov [rsp - 16], rax
    mov [rsp - 24], rdx
    mov [rsp - 32], rcx
    SAVE_FLAGS -40
    .endm

/* The caller's return address into rax; off to `if_site` if it is a site: then this is a tail call. */
    .macro RETURN_ADDRESS_OR if_site
    mov rax, [rsp]
    lea rcx, [rip + sg_sites]
    mov rdx, rax
    sub rdx, rcx
    cmp rdx, SG_STRIDE * SG_FRAMES
    jb \if_site
    .endm

/*
 * Entered from a thunk: r11 is saved and points at the function's record. This is the path of functions that are recorded
 * and nothing else; the record leads all others to one of the entries of the aside path below.
 */
    .globl sg_enter
    .hidden sg_enter
    .type sg_enter, @function
    .balign 64
sg_enter:
    .cfi_startproc
    SAVE_AT_ENTRY
    RETURN_ADDRESS_OR .Lenter_slow
.Lenter_take:
    THREAD rdx, rcx, .Lenter_slow
    mov rax, [rdx + THREAD_TOP]              /* the frame below ours */
    test rax, rax
    jz .Lenter_slow                          /* a forked child */
    cmp qword ptr [rax + SG_STRIDE + FRAME_SLOT], SG_SLOT_FREE
    jne .Lenter_no_frame
    cmp rsp, [rax + FRAME_SLOT]
    jae .Lenter_slow                         /* the frame below is dead, or on another stack */
    lea rcx, [rax + SG_STRIDE]
    cmpxchg [rdx + THREAD_TOP], rcx          /* ours is taken, and stays free for signal handlers until it has a slot */
    jne .Lenter_slow
    mov rax, [rsp]
    mov [rcx + FRAME_ORIGINAL], rax
    mov rax, [r11 + FUNCTION_BODY]
    mov [rcx + FRAME_TARGET], rax
    mov [rcx + FRAME_FUNCTION], r11
    mov [rcx + FRAME_SLOT], rsp
    rdtsc
    shl rdx, 32
    or rax, rdx
    add rax, [rcx + FRAME_BIAS]
    mov rdx, [rcx + FRAME_OPEN]
    mov [rdx], rax
    mov eax, [r11 + FUNCTION_ID]
    mov [rdx + 8], rax                       /* from here on the controller sees the call as open */
.Lenter_go:
    TO_SITE_BY_BIT cl, 64, TO_SITE_BY_BIT cl, 128, TO_SITE_BY_BIT ch, 1, TO_SITE
    .cfi_endproc
    .size sg_enter, . - sg_enter
    .globl sg_enter_end
    .hidden sg_enter_end
sg_enter_end:

    .globl sg_enter_aside
    .hidden sg_enter_aside
    .type sg_enter_aside, @function
sg_enter_aside:
    .cfi_startproc
.Lenter_pass:                                /* straight to the body: this call is not traced */
    RESTORE_FLAGS -40
    mov rax, [rsp - 16]
    mov rdx, [rsp - 24]
    mov rcx, [rsp - 32]
    jmp [r11 + FUNCTION_BODY]

.Lenter_no_frame:
    cmp qword ptr [rax + SG_STRIDE + FRAME_SLOT], SG_SLOT_CUT
    jne .Lenter_slow
    cmp rsp, [rax + FRAME_SLOT]
    jae .Lenter_slow                         /* left by an exception, it may be: then this call is not too deep */
    mov rdx, [rdx + THREAD_SHARED]
    inc qword ptr [rdx + SHARED_FILTERED]
    jmp .Lenter_pass

    .globl sg_enter_from_caller, sg_enter_for_true_return, sg_enter_count, sg_enter_general
    .hidden sg_enter_from_caller, sg_enter_for_true_return, sg_enter_count, sg_enter_general
sg_enter_from_caller:                        /* recorded if the executable calls it */
    SAVE_AT_ENTRY
    RETURN_ADDRESS_OR .Lenter_slow
    sub rax, [rip + sg_caller_low]
    cmp rax, [rip + sg_caller_size]
    jb .Lenter_take
    jmp .Lenter_pass

sg_enter_for_true_return:                    /* must find its true return address: it does unless this is a tail call */
    SAVE_AT_ENTRY
    RETURN_ADDRESS_OR .Lenter_slow
    jmp .Lenter_pass

/*
 * Counted and nothing else: one more in this thread's cell (cells.c). One instruction adds, so that a signal handler comes
 * before or behind it.
 */
sg_enter_count:
    SAVE_AT_ENTRY
    THREAD rdx, rcx, .Lenter_slow
    mov rcx, [rdx + THREAD_PAGES]
    test rcx, rcx
    jz .Lenter_slow
    mov eax, [r11 + FUNCTION_CELL]
    mov edx, eax
    shr edx, PAGE_CELLS_SHIFT
    mov rcx, [rcx + 8 * rdx]
    test rcx, rcx
    jz .Lenter_slow
    and eax, PAGE_CELLS_MASK
    inc qword ptr [rcx + 8 * rax]
    jmp .Lenter_pass

sg_enter_general:                            /* several users, or one of the agent's own needs */
    SAVE_AT_ENTRY

.Lenter_slow:
    mov [rsp - 56], rbp
    mov rbp, rsp
    .cfi_def_cfa rbp, 8
    .cfi_offset rbp, -64
    sub rsp, 64 + 208
    and rsp, -16
    mov [rsp], rdi
    mov [rsp + 8], rsi
    mov rax, [rbp - 24]
    mov [rsp + 16], rax
    mov rax, [rbp - 32]
    mov [rsp + 24], rax
    mov [rsp + 32], r8
    mov [rsp + 40], r9
    mov [rsp + 48], r10
    mov [rsp + 56], r11
    test dword ptr [r11 + FUNCTION_FLAGS], FLAG_VECTORS
    jz .Lenter_no_vectors
    movups [rsp + 64], xmm0
    movups [rsp + 80], xmm1
    movups [rsp + 96], xmm2
    movups [rsp + 112], xmm3
    movups [rsp + 128], xmm4
    movups [rsp + 144], xmm5
    movups [rsp + 160], xmm6
    movups [rsp + 176], xmm7
.Lenter_no_vectors:
    pushfq
    pop rax
    mov [rsp + 192], rax                     /* the direction flag is the program's; C code wants it clear */
    cld
    mov rdi, rbp
    mov rsi, r11
    mov rdx, rsp
    call sg_enter_slow
    mov rcx, rax
    mov rdi, [rsp]
    mov rsi, [rsp + 8]
    mov r8, [rsp + 32]
    mov r9, [rsp + 40]
    mov r10, [rsp + 48]
    mov r11, [rsp + 56]
    test dword ptr [rsp + 192], 0x400
    jz 1f
    std
1:  mov rsp, rbp
    mov rbp, [rsp - 56]
    .cfi_def_cfa rsp, 8
    .cfi_restore rbp
    test rcx, rcx
    jnz .Lenter_go
    /*
     * Where the slot has been given its caller's address back (give_back_slot), a hardware shadow stack still has the site on
     * top: it goes, too, now that all C code has returned. rdssp does nothing where there is none, or where it is off.
     */
    xor eax, eax
    rdsspq rax
    test rax, rax
    jz .Lenter_pass
    mov rdx, [rax]
    cmp rdx, [rsp]
    je .Lenter_pass
    mov eax, 1
    incsspq rax
    jmp .Lenter_pass
    .cfi_endproc
    .size sg_enter_aside, . - sg_enter_aside
    .globl sg_enter_aside_end
    .hidden sg_enter_aside_end
sg_enter_aside_end:

/* Entered from a site: rcx is saved and points at the frame; the slot at rsp - 8 holds the site's address. */
    .globl sg_return
    .hidden sg_return
    .type sg_return, @function
    .balign 64
sg_return:
    .cfi_startproc
    .cfi_def_cfa rsp, 8
    CALLER_RSP
    RETURN_ADDRESS_IN_FRAME_OF_SLOT
    mov [rsp - 16], rax
    mov [rsp - 24], rdx
    mov [rsp - 32], rsi
    mov [rsp - 56], rdi
    SAVE_FLAGS -48
    mov rdx, [rcx + FRAME_OPEN]
    mov rsi, [rdx]                           /* q0 */
    mov rdi, [rdx + 8]
    test rdi, rdi
    js .Lreturn_slow                         /* other users, or values to capture: the slow path takes the time itself */
    rdtsc
    shl rdx, 32
    or rax, rdx
    add rax, [rcx + FRAME_BIAS]
    sub rax, rsi                             /* duration: the bias, and with it the depth, cancels */
    cmp rax, [rip + sg_minimal_ticks]
    jb .Lreturn_filtered
    cmp rax, [rip + .Llong]
    jae .Lreturn_slow
    shl rax, SG_FUNCTION_BITS
    or rax, rdi                              /* q1 */
    THREAD rdx, rdi, .Lreturn_slow
    cmp rcx, [rdx + THREAD_TOP]
    jne .Lreturn_slow                        /* tail-called functions, dead frames or another stack's above it */
    movabs rdi, SG_PLACE_ONE
    xadd [rdx + THREAD_POSITION], rdi        /* reserved in one instruction; then filled */
    js .Lreturn_slow
    shl rdi, 16                              /* the address without the count */
    shr rdi, 16
    mov [rdi], rsi
    mov [rdi + 8], rax
.Lreturn_free:
    mov rsi, [rcx + FRAME_OPEN]
    mov qword ptr [rsi + 8], 0
    mov qword ptr [rcx + FRAME_SLOT], SG_SLOT_FREE
    mov rsi, [rcx + FRAME_ORIGINAL]
    mov [rsp - 8], rsi
    RETURN_ADDRESS_IN_SLOT                   /* the frame may be another call's as soon as it is given back */
    lea rsi, [rcx - SG_STRIDE]
    mov rax, rcx
    cmpxchg [rdx + THREAD_TOP], rsi
    jne .Lreturn_not_top
.Lreturn_go:
    RESTORE_FLAGS -48
    mov rax, [rsp - 16]
    mov rdx, [rsp - 24]
    mov rsi, [rsp - 32]
    mov rcx, [rsp - 40]
    mov rdi, [rsp - 56]
    lea rsp, [rsp - 8]
    .cfi_def_cfa rsp, 16
    ret                                      /* predicted: it matches the call of the original caller */
    .cfi_endproc
    .size sg_return, . - sg_return
    .globl sg_return_end
    .hidden sg_return_end
sg_return_end:

    .globl sg_return_aside
    .hidden sg_return_aside
    .type sg_return_aside, @function
sg_return_aside:
    .cfi_startproc
    .cfi_def_cfa rsp, 8
    CALLER_RSP
    RETURN_ADDRESS_IN_FRAME_OF_SLOT
.Lreturn_filtered:
    THREAD rdx, rdi, .Lreturn_slow
    cmp rcx, [rdx + THREAD_TOP]
    jne .Lreturn_slow
    mov rsi, [rdx + THREAD_SHARED]
    inc qword ptr [rsi + SHARED_FILTERED]
    jmp .Lreturn_free
.Lreturn_not_top:                            /* changed between the comparison and the exchange, by a signal handler */
    mov edx, 1
    jmp .Lreturn_call
.Lreturn_slow:
    xor edx, edx
.Lreturn_call:
    mov [rsp - 64], rbp
    mov rbp, rsp
    .cfi_def_cfa rbp, 8
    .cfi_offset rbp, -72
    sub rsp, 72 + 96
    and rsp, -16
    mov [rsp], r8
    mov [rsp + 8], r9
    mov [rsp + 16], r10
    mov [rsp + 24], r11
    mov rax, [rbp - 16]
    mov [rsp + 32], rax
    mov rax, [rbp - 24]
    mov [rsp + 40], rax
    movups [rsp + 48], xmm0
    movups [rsp + 64], xmm1
    pushfq
    pop rax
    mov [rsp + 80], rax
    cld
    mov rdi, rcx
    lea rsi, [rbp - 8]
    mov rcx, rsp
    call sg_exit_slow                        /* has put the original address into the slot */
    mov r8, [rsp]
    mov r9, [rsp + 8]
    mov r10, [rsp + 16]
    mov r11, [rsp + 24]
    test dword ptr [rsp + 80], 0x400
    jz 1f
    std
1:  mov rsp, rbp
    mov rbp, [rsp - 64]
    .cfi_def_cfa rsp, 8
    .cfi_restore rbp
    jmp .Lreturn_go
    .cfi_endproc
    .size sg_return_aside, . - sg_return_aside
    .globl sg_return_aside_end
    .hidden sg_return_aside_end
sg_return_aside_end:

    .section .rodata
    .balign 8
.Llong:
    .quad 1 << SG_DURATION_BITS
    .section .note.GNU-stack, "", @progbits
