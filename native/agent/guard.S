/*
 * Where signals of faults arrive while handlers in C are in the process (guard.c). What is the program's goes on to the
 * program's own handler, as if the kernel had called that: same registers, same stack, same return address.
 */
    .intel_syntax noprefix
    .text

    .globl sg_guard_entry
    .hidden sg_guard_entry
    .type sg_guard_entry, @function
sg_guard_entry:
    .cfi_startproc
    push rdi
    .cfi_def_cfa_offset 16
    push rsi
    .cfi_def_cfa_offset 24
    push rdx
    .cfi_def_cfa_offset 32
    call sg_guard_decide
    pop rdx
    .cfi_def_cfa_offset 24
    pop rsi
    .cfi_def_cfa_offset 16
    pop rdi
    .cfi_def_cfa_offset 8
    test rax, rax
    jz 1f
    jmp rax
1:  ret
    .cfi_endproc
    .size sg_guard_entry, . - sg_guard_entry

/*
 * Returning from a signal handler. No unwind information: unwinders know the frame of a signal by these very bytes
 * (libgcc, config/i386/linux-unwind.h).
 */
    .balign 16
    nop
    .globl sg_guard_restorer
    .hidden sg_guard_restorer
    .type sg_guard_restorer, @function
sg_guard_restorer:
    mov rax, 15                              /* rt_sigreturn; seven bytes, as in the C libraries */
    syscall
    .size sg_guard_restorer, . - sg_guard_restorer
    .section .note.GNU-stack, "", @progbits
