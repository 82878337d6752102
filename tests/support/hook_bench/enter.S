/*
 * The least `enter` that a thunk can lead to: writes the function's id into the log, and goes on to the body. Position
 * independent; LOG is an absolute address. Touches no register, no flag, and of memory only what lies 128 bytes below rsp
 * at most, as the agent does.
 */
        .text
        .globl  enter
enter:
        lea     -64(%rsp), %rsp
        pushfq
        push    %rax
        push    %rcx
        movabs  $LOG, %rax
        mov     (%rax), %rcx
        cmp     $31, %rcx
        cmova   last(%rip), %rcx
        lea     8(%rax, %rcx, 4), %rcx
        incq    (%rax)
        mov     16(%r11), %eax          /* the record's function id */
        mov     %eax, (%rcx)
        mov     8(%r11), %rax           /* the body */
        mov     %rax, 24(%rsp)          /* rsp - 64 of the caller */
        pop     %rcx
        pop     %rax
        popfq
        lea     64(%rsp), %rsp
        jmp     *-64(%rsp)
last:   .quad   31
