/*
 * The return path: what a traced call costs at its end. What holds for paths.S holds here.
 */
#include "state.h"
#include "unwind.h"
    .intel_syntax noprefix
    .text

#include "paths.h"
#include "frugal_return.h"

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
    js .Lreturn_marked                       /* other users, or values to capture: the slow path takes the time itself */
    NOW
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
    RESERVE .Lreturn_slow, [rdx + THREAD_POSITION]
    mov [rdi], rsi
    mov [rdi + 8], rax
.Lreturn_free:
    GIVE_BACK_FRAME .Lreturn_not_top
.Lreturn_go:
    TO_CALLER
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
.Lreturn_marked:
    bt rdi, OPEN_FRUGAL_BIT
    jnc .Lreturn_other_marks
    FRUGAL_RETURN
.Lreturn_other_marks:
    bt rdi, OPEN_RECORDERS_BIT
    jc .Lreturn_recorders
    bt rdi, OPEN_MEASURED_BIT
    jnc .Lreturn_slow
    rdtsc
    shl rdx, 32
    or rdx, rax
    THREAD rsi, rdi, .Lreturn_slow
    mov rdi, rcx
    sub rsp, 72                              /* below what is kept there */
    .cfi_adjust_cfa_offset 72
    call sg_leave_measured                   /* keeps all registers but rax */
    add rsp, 72
    .cfi_adjust_cfa_offset -72
    mov rdx, rsi
    test eax, eax
    jnz .Lreturn_free
    jmp .Lreturn_slow
.Lreturn_recorders:                          /* recorders alone want the exit: each gets its record here */
    NOW
    add rax, [rcx + FRAME_BIAS]
    sub rax, rsi
    cmp rax, [rip + sg_minimal_ticks]
    jb .Lreturn_slow
    cmp rax, [rip + .Llong]
    jae .Lreturn_slow
    shl rax, SG_FUNCTION_BITS
    and edi, (1 << SG_FUNCTION_BITS) - 1
    or rax, rdi
    THREAD rdx, rdi, .Lreturn_slow
    cmp rcx, [rdx + THREAD_TOP]
    jne .Lreturn_slow
    mov [rsp - 72], r8
    mov [rsp - 80], r9
    mov r8, [rcx + FRAME_OPEN]
    mov r8, [r8 + OPEN_USERS]
    test r8, r8
    jz .Lreturn_recorded
.Lreturn_next_recorder:
    bsf r9, r8
    neg r9d                                  /* slot 0 has rings 0, slot SG_USERS - n has rings n */
    and r9d, USERS_MASK
    shl r9d, RING_SHIFT
    RESERVE .Lreturn_recorder_full, [rdx + r9 + THREAD_POSITION]
    mov [rdi], rsi
    mov [rdi + 8], rax
    lea r9, [r8 - 1]
    and r8, r9
    jnz .Lreturn_next_recorder
.Lreturn_recorded:
    mov r8, [rsp - 72]
    mov r9, [rsp - 80]
    jmp .Lreturn_free
.Lreturn_recorder_full:                      /* the slow path goes on with those that are left */
    mov rdi, [rcx + FRAME_OPEN]
    mov [rdi + OPEN_USERS], r8
    mov r8, [rsp - 72]
    mov r9, [rsp - 80]
    jmp .Lreturn_slow
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
    test eax, 0x400
    jz 1f
    cld
1:  mov rdi, rcx
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
