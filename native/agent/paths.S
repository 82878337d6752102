/*
 * The entry path: what a traced call costs. The return path is in returns.S, and keeps registers as told here.
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
 *                                              rsp - 72  r8 (several recorders)
 *                                              rsp - 80  r9 (several recorders)
 *
 * The slow paths count from rbp, not from another register that calls preserve: elfutils forgets rbx in frames whose
 * unwind information does not mention it (libdw 0.188, backends/x86_64_cfi.c).
 */
#include "state.h"
#include "unwind.h"
    .intel_syntax noprefix
    .text

#include "paths.h"
#include "frugal_entry.h"

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
    TAKE_FRAME .Lenter_slow, .Lenter_no_frame
.Lenter_taken:
    WRITE_FRAME rcx
    NOW
    add rax, [rcx + FRAME_BIAS]
    mov rdx, [rcx + FRAME_OPEN]
    mov [rdx], rax
    mov eax, [r11 + FUNCTION_ID]
    mov [rdx + 8], rax                       /* from here on the controller sees the call as open */
.Lenter_go:
    TO_SITE_OF_FRAME
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

    .globl sg_enter_from_caller, sg_enter_for_true_return, sg_enter_count, sg_enter_count_and_record, sg_enter_measure, sg_enter_general
    .globl sg_enter_recorders
    .hidden sg_enter_recorders
    .hidden sg_enter_from_caller, sg_enter_for_true_return, sg_enter_count, sg_enter_count_and_record, sg_enter_measure, sg_enter_general
sg_enter_from_caller:                        /* recorded if the executable calls it */
    SAVE_AT_ENTRY
    RETURN_ADDRESS_OR .Lenter_slow
    mov rax, [rsp]
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

/* Counted and recorded. It is counted when there is no way back to the slow path any more, which would count it once more. */
sg_enter_count_and_record:
    SAVE_AT_ENTRY
    RETURN_ADDRESS_OR .Lenter_slow
    THREAD rdx, rcx, .Lenter_slow
    mov rcx, [rdx + THREAD_PAGES]
    test rcx, rcx
    jz .Lenter_slow
    mov eax, [r11 + FUNCTION_CELL]
    shr eax, PAGE_CELLS_SHIFT
    cmp qword ptr [rcx + 8 * rax], 0
    je .Lenter_slow
    TAKE_FRAME .Lenter_slow, .Lenter_slow
    mov rdx, [rdx + THREAD_PAGES]
    mov eax, [r11 + FUNCTION_CELL]
    shr eax, PAGE_CELLS_SHIFT
    mov rdx, [rdx + 8 * rax]
    mov eax, [r11 + FUNCTION_CELL]
    and eax, PAGE_CELLS_MASK
    inc qword ptr [rdx + 8 * rax]
    jmp .Lenter_taken

/*
 * Measured: all users want the exit and nothing else. Who they are is read as in sg_users_of; of those whom an entry that
 * leads here does not serve (they are about to be given another one), the call is not theirs yet.
 */
sg_enter_measure:
    SAVE_AT_ENTRY
    RETURN_ADDRESS_OR .Lenter_slow
    THREAD rdx, rcx, .Lenter_slow
    TAKE_FRAME .Lenter_slow, .Lenter_slow
    mov [rsp - 56], rdi
    WRITE_FRAME rcx
    mov rdx, [rcx + FRAME_OPEN]
    mov rdi, [rip + sg_registry]
1:  mov rax, [rdi + REGISTRY_EPOCH]
    mov [rdx + OPEN_EPOCH], rax
    mov eax, [rdi + REGISTRY_SIDE]
    mov [rsp - 64], rax
    and eax, 1
    mov rax, [r11 + 8 * rax + FUNCTION_USERS]
    and rax, [rdi + REGISTRY_ARMED]
    and rax, [rdi + REGISTRY_MEASURES]
    mov [rdx + OPEN_USERS], rax
    mov eax, [rdi + REGISTRY_SIDE]
    cmp rax, [rsp - 64]
    jne 1b
    mov rax, [rdi + REGISTRY_EPOCH]
    cmp rax, [rdx + OPEN_EPOCH]
    jne 1b
    mov rdi, rdx
    NOW
    add rax, [rcx + FRAME_BIAS]
    mov [rdi], rax
    mov rax, [rdi + OPEN_USERS]
    lea rdx, [rax - 1]
    test rax, rdx
    movabs rdx, OPEN_USERS_MARK
    jnz 2f
    bts rdx, OPEN_MEASURED_BIT               /* one alone: see measured.c */
2:  mov eax, [r11 + FUNCTION_ID]
    or rax, rdx
    mov [rdi + OPEN_FUNCTION], rax           /* from here on controllers see the call as open */
    mov rdi, [rsp - 56]
    jmp .Lenter_go

/*
 * Recorded by several, and nothing else: as sg_enter, with who they are beside the open call. One time stamp at each end is for
 * all of them.
 */
sg_enter_recorders:
    SAVE_AT_ENTRY
    RETURN_ADDRESS_OR .Lenter_slow
    THREAD rdx, rcx, .Lenter_slow
    TAKE_FRAME .Lenter_slow, .Lenter_slow
    WRITE_FRAME rcx
    mov rax, [r11 + FUNCTION_RECORDERS]
    mov rdx, [rcx + FRAME_OPEN]
    mov [rdx + OPEN_USERS], rax
    NOW
    add rax, [rcx + FRAME_BIAS]
    mov rdx, [rcx + FRAME_OPEN]
    mov [rdx], rax
    mov eax, [r11 + FUNCTION_ID]
    or rax, [rip + .Lof_recorders]
    mov [rdx + OPEN_FUNCTION], rax           /* from here on controllers see the call as open */
    jmp .Lenter_go

    FRUGAL_ENTRY

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
    test eax, 0x400
    jz 1f
    cld
1:
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

    .section .rodata
    .balign 8
.Lof_recorders:
    .quad OPEN_USERS_MARK | 1 << OPEN_RECORDERS_BIT
    .section .note.GNU-stack, "", @progbits
