/*
 * The floor: what a call costs that times itself and writes its own record, with nothing around it. No tracer that
 * takes two time stamps and writes a record of 16 bytes can cost less.
 *
 * Two rdtsc, inline in the function, and the record store: start, then duration << 24 | function, into a small buffer of
 * the thread that is used over and over again, so that it stays in the cache. The place in the buffer is moved on by a
 * plain addition: a signal handler that recorded too would need more.
 */
    .intel_syntax noprefix

    .set BUFFER, 131072                  /* as large as one of the recorder's segments */

    .section .tbss, "awT", @nobits
    .balign 64
position:
    .skip 8
end:
    .skip 8
buffer:
    .skip BUFFER
    .text

    .macro NOW                           /* rax: ticks; rdx is lost */
    rdtsc
    shl rdx, 32
    or rax, rdx
    .endm

    .macro RECORD function               /* rax: ticks at the end, rcx: at the start; both and rdx are lost */
    sub rax, rcx
    shl rax, 24
    or rax, \function
    mov rdx, fs:position@tpoff
    cmp rdx, fs:end@tpoff
    jae 9f
8:  mov [rdx], rcx
    mov [rdx + 8], rax
    add rdx, 16
    mov fs:position@tpoff, rdx
    .endm

    .macro RECYCLE                       /* out of the way of the loop */
9:  mov rdx, fs:0
    lea rdx, [rdx + buffer@tpoff]
    mov fs:position@tpoff, rdx
    add rdx, BUFFER
    mov fs:end@tpoff, rdx
    sub rdx, BUFFER
    jmp 8b
    .endm

    .macro FUNCTION name
    .globl \name
    .type \name, @function
    .balign 64
\name:
    .endm

FUNCTION floor_leaf
    NOW
    mov rcx, rax
    lea r8, [rdi + 2 * rdi + 7]
    NOW
    RECORD 1
    mov rax, r8
    ret
    RECYCLE

FUNCTION floor_fib
    NOW
    push rbx
    push rbp
    push rax
    mov rbx, rdi
    mov r8, rdi
    cmp rdi, 2
    jl 1f
    lea rdi, [rbx - 1]
    call floor_fib
    mov rbp, rax
    lea rdi, [rbx - 2]
    call floor_fib
    lea r8, [rax + rbp]
1:  NOW
    pop rcx
    pop rbp
    pop rbx
    RECORD 2
    mov rax, r8
    ret
    RECYCLE

    .macro LINK name, next, number
FUNCTION \name
    NOW
    push rbx
    push rax
    mov rbx, rdi
    add rdi, 1
    call \next
    lea r8, [rax + rbx]
    NOW
    pop rcx
    pop rbx
    RECORD \number
    mov rax, r8
    ret
    RECYCLE
    .endm

    LINK floor_chain, floor_chain2, 3
    LINK floor_chain2, floor_chain3, 4
    LINK floor_chain3, floor_chain4, 5
    LINK floor_chain4, floor_chain5, 6
    LINK floor_chain5, floor_chain6, 7
    LINK floor_chain6, floor_chain7, 8
    LINK floor_chain7, floor_chain8, 9

FUNCTION floor_chain8
    NOW
    mov rcx, rax
    mov r8, rdi
    NOW
    RECORD 10
    mov rax, r8
    ret
    RECYCLE

    .section .note.GNU-stack, "", @progbits
