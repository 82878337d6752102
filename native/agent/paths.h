/*
 * What the entry path and the return path are made of (paths.S): assembly alone. Which register is where, paths.S draws.
 */
#ifndef SHADOWGRAPH_PATHS_H
#define SHADOWGRAPH_PATHS_H

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

    .macro NOW                               /* ticks into rax; rdx is lost */
    rdtsc
    shl rdx, 32
    or rax, rdx
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

    .macro TO_SITE_OF_FRAME
    TO_SITE_BY_BIT cl, 64, TO_SITE_BY_BIT cl, 128, TO_SITE_BY_BIT ch, 1, TO_SITE
    .endm

    .macro SAVE_AT_ENTRY
    mov [rsp - 16], rax
    mov [rsp - 24], rdx
    mov [rsp - 32], rcx
    SAVE_FLAGS -40
    .endm

/* Off to `if_site` if the caller's return address is a site: then this is a tail call. */
    .macro RETURN_ADDRESS_OR if_site
    mov rdx, [rsp]
    lea rcx, [rip + sg_sites]
    sub rdx, rcx
    cmp rdx, SG_STRIDE * SG_FRAMES
    jb \if_site
    .endm

/* What a frame says of its call; last, its slot: from then on it is in use. The caller is at [rsp], r11 the function. */
    .macro WRITE_FRAME frame
    mov rax, [rsp]
    mov [\frame + FRAME_ORIGINAL], rax
    mov rax, [r11 + FUNCTION_BODY]
    mov [\frame + FRAME_TARGET], rax
    mov [\frame + FRAME_FUNCTION], r11
    mov [\frame + FRAME_SLOT], rsp
    .endm

/* The frame rcx of a call that has ended; rdx is the thread. */
    .macro GIVE_BACK_FRAME not_top
    mov rsi, [rcx + FRAME_OPEN]
    mov qword ptr [rsi + 8], 0
    mov qword ptr [rcx + FRAME_SLOT], SG_SLOT_FREE
    mov rsi, [rcx + FRAME_ORIGINAL]
    mov [rsp - 8], rsi
    .cfi_remember_state
    RETURN_ADDRESS_IN_SLOT                   /* the frame may be another call's as soon as it is given back */
    lea rsi, [rcx - SG_STRIDE]
    mov rax, rcx
    cmpxchg [rdx + THREAD_TOP], rsi
    jne \not_top
    .endm

    .macro TO_CALLER
    RESTORE_FLAGS -48
    mov rax, [rsp - 16]
    mov rdx, [rsp - 24]
    mov rsi, [rsp - 32]
    mov rcx, [rsp - 40]
    mov rdi, [rsp - 56]
    lea rsp, [rsp - 8]
    .cfi_def_cfa rsp, 16
    ret                                      /* predicted: it matches the call of the original caller */
    .cfi_restore_state
    .endm

/* A place for a record into rdi, reserved in one instruction; then filled. `position`: of the thread's ring, in memory. */
    .macro RESERVE full, position:vararg
    movabs rdi, SG_PLACE_ONE
    xadd \position, rdi
    js \full
    shl rdi, 16                              /* the address without the count */
    shr rdi, 16
    prefetchw [rdi + SG_AHEAD]               /* a segment comes from memory, or from the controller's processor */
    .endm

/* A frame for this call into rcx; rdx is the thread. One conditional instruction takes it: docs/costs.md says why. */
    .macro TAKE_FRAME without, no_frame
    TOP_OR \without
    TAKE_FRAME_ABOVE \without, \no_frame
    .endm

    .macro TOP_OR without
    mov rax, [rdx + THREAD_TOP]              /* the frame below ours */
    test rax, rax
    jz \without                              /* a forked child */
    .endm

    .macro TAKE_FRAME_ABOVE without, no_frame
    cmp qword ptr [rax + SG_STRIDE + FRAME_SLOT], SG_SLOT_FREE
    jne \no_frame
    cmp rsp, [rax + FRAME_SLOT]
    jae \without                             /* the frame below is dead, or on another stack */
    lea rcx, [rax + SG_STRIDE]
    cmpxchg [rdx + THREAD_TOP], rcx          /* ours is taken, and stays free for signal handlers until it has a slot */
    jne \without
    .endm

#endif
