/* The entry and return paths of the three layouts: see layouts.h. */
#include "layouts.h"
    .intel_syntax noprefix
    .text

    .macro SAVE                              /* at an entry rsp is 8 below a multiple of 16, and so it is for C code then */
    .irp register, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
    push \register
    .endr
    .endm
#define SLOT 72

    .macro RESTORE                           /* the flags stay */
    .irp register, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax
    pop \register
    .endr
    .endm

    .macro SAVE_RESULT                       /* behind a site; the slot is ours again */
    sub rsp, 8
    push rax
    push rdx
    push rcx
    .endm
#define SLOT_AT_RETURN 24

    .macro RESTORE_RESULT_AND_RETURN
    pop rcx
    pop rdx
    pop rax
    ret
    .endm

/* One frame for all users: a function in C takes it and runs them. */
    .macro ONE_FRAME layout
    .globl enter_\layout
    .balign 64
enter_\layout:
    SAVE
    lea rdi, [rsp + SLOT]
    call \layout\()_enter
    test eax, eax
    RESTORE
    jz leaf
    lea rsp, [rsp + 8]
    call leaf                                /* the site */
    SAVE_RESULT
    lea rdi, [rsp + SLOT_AT_RETURN]
    call \layout\()_leave
    RESTORE_RESULT_AND_RETURN
    .endm

    ONE_FRAME list
    ONE_FRAME mask

/* A trampoline of one user, as it would be generated, with a site of its own; what it calls is the next one. */
    .macro TRAMPOLINE number, next
    .balign 64
chain_\number:
    SAVE
    mov rax, [rip + chain_top]
    mov rcx, [rsp + SLOT]
    lea rdi, [rsp + SLOT]
    mov [rax + CHAIN_ORIGINAL], rcx
    mov [rax + CHAIN_SLOT], rdi
    add rax, CHAIN_SIZE
    mov [rip + chain_top], rax
    call [rip + users + USER_SIZE * \number + USER_ENTER]
    test eax, eax
    jz 1f
    RESTORE
    lea rsp, [rsp + 8]
    call \next                               /* the site */
    SAVE_RESULT
    mov rax, [rip + chain_top]
    mov rcx, [rax - CHAIN_SIZE + CHAIN_ORIGINAL]
    lea rdi, [rsp + SLOT_AT_RETURN]
    mov [rdi], rcx
    sub rax, CHAIN_SIZE
    mov [rip + chain_top], rax
    call [rip + users + USER_SIZE * \number + USER_LEAVE]
    RESTORE_RESULT_AND_RETURN
1:  sub qword ptr [rip + chain_top], CHAIN_SIZE
    RESTORE
    jmp \next
    .endm

    .altmacro
    .macro LINK number, following
    TRAMPOLINE \number, chain_\following
    .endm
    .set k, 0
    .rept MOST - 1
    LINK %k, %k + 1
    .set k, k + 1
    .endr
    .noaltmacro
    .macro LAST number
    TRAMPOLINE \number, leaf
    .endm
    .altmacro
    LAST %k

    .macro START number
    .quad chain_\number
    .endm
    .section .data.rel.ro, "aw", @progbits
    .balign 8
    .globl chains
chains:                                      /* the first n users are the last n trampolines' */
    .quad leaf
    .rept MOST
    START %k
    .set k, k - 1
    .endr
    .section .note.GNU-stack, "", @progbits
