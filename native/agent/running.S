/*
 * Running a handler in C so that it can be left where it faults. What its caller expects to find again is noted before, and
 * looked at only then: a handler that returns has kept it.
 */
    .intel_syntax noprefix
    .text

/* int sg_handler_run(struct sg_call *call, uint64_t address, uint64_t way_out[7]): what the handler returns; -1: it faulted */
    .globl sg_handler_run
    .hidden sg_handler_run
    .type sg_handler_run, @function
sg_handler_run:
    .cfi_startproc
    mov [rdx], rsp
    mov [rdx + 8], rbp
    mov [rdx + 16], rbx
    mov [rdx + 24], r12
    mov [rdx + 32], r13
    mov [rdx + 40], r14
    mov [rdx + 48], r15
    jmp rsi                                  /* it returns to where this was called; so does sg_guard_decide (guard.c) */
    .cfi_endproc
    .size sg_handler_run, . - sg_handler_run
    .section .note.GNU-stack, "", @progbits
