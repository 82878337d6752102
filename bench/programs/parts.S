/*
 * The entry path and the return path reduced to what no path of their kind can leave out, and with some of the rest: what
 * each part costs. ../path_parts.py builds this with FLAGS, TAKING or both; neither is fit to trace a program.
 *
 * The functions below are hooked by hand, with thunks like those that the controller writes. They are the same as
 * in floor.S, without the time stamps. With AGENT, there are only they: native/agent/paths.S and returns.S are linked to them.
 */
#include "state.h"
#define FUNCTION_SIZE 64 /* struct sg_function */
#define FRAME_STARTED 56 /* struct sg_frame: unused by the agent */
    .intel_syntax noprefix
    .text

#ifndef AGENT
    .macro SAVE_FLAGS place
#ifdef FLAGS
    lahf
    seto al
    mov [rsp + \place], ax
#endif
    .endm

    .macro RESTORE_FLAGS place
#ifdef FLAGS
    movzx eax, word ptr [rsp + \place]
    add al, 127
    sahf
#endif
    .endm

    .macro THREAD register
    mov \register, [rip + sg_thread@GOTTPOFF]
    mov \register, fs:[\register]
    .endm

    .globl sg_enter, sg_return
    .balign 64
sg_enter:
    mov [rsp - 16], rax
    mov [rsp - 24], rdx
    mov [rsp - 32], rcx
    SAVE_FLAGS -40
    THREAD rdx
#ifdef TAKING
    mov rax, [rdx + THREAD_TOP]
    lea rcx, [rax + SG_STRIDE]
    cmpxchg [rdx + THREAD_TOP], rcx
    jne sg_enter_slow
#else
    add qword ptr [rdx + THREAD_TOP], SG_STRIDE
    mov rcx, [rdx + THREAD_TOP]
#endif
    mov rax, [rsp]
    mov [rcx + FRAME_ORIGINAL], rax
    mov rax, [r11 + FUNCTION_BODY]
    mov [rcx + FRAME_TARGET], rax
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov [rcx + FRAME_STARTED], rax
    RESTORE_FLAGS -40
    mov rax, [rsp - 16]
    mov rdx, [rsp - 24]
    lea rsp, [rsp + 8]
    jmp [rcx + FRAME_SITE]

    .balign 64
sg_return:
    mov [rsp - 16], rax
    mov [rsp - 24], rdx
    mov [rsp - 32], rsi
    SAVE_FLAGS -48
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov rdx, [rcx + FRAME_STARTED]
    sub rax, rdx
    shl rax, SG_FUNCTION_BITS
    or rax, 1
    THREAD rsi
    mov rsi, [rsi + THREAD_POSITION]
    mov [rsi], rdx
    mov [rsi + 8], rax
    add rsi, SG_RECORD_SIZE
    THREAD rdx
    cmp rsi, [rdx + THREAD_PAGES]            /* the end of the buffer */
    jae 9f
8:  mov [rdx + THREAD_POSITION], rsi
    mov rsi, [rcx + FRAME_ORIGINAL]
    mov [rsp - 8], rsi
#ifdef TAKING
    lea rsi, [rcx - SG_STRIDE]
    mov rax, rcx
    cmpxchg [rdx + THREAD_TOP], rsi
    jne sg_enter_slow
#else
    sub qword ptr [rdx + THREAD_TOP], SG_STRIDE
#endif
    RESTORE_FLAGS -48
    mov rax, [rsp - 16]
    mov rdx, [rsp - 24]
    mov rsi, [rsp - 32]
    mov rcx, [rsp - 40]
    lea rsp, [rsp - 8]
    ret
9:  mov rsi, [rdx + THREAD_SHARED]           /* its beginning */
    jmp 8b
#endif

    .macro HOOKED name, number
    .globl \name
    .balign 64
\name:
    jmp \name\()_thunk
    .balign 64
\name\()_thunk:
    mov [rsp - 48], r11
    movabs r11, offset functions + FUNCTION_SIZE * \number
    jmp [r11]
    .globl \name\()_body
\name\()_body:
    mov r11, [rsp - 48]
    .endm

HOOKED traced_leaf, 0
    lea rax, [rdi + 2 * rdi + 7]
    jmp 1f
    .balign 64
1:  ret

HOOKED traced_fib, 1
    push rbx
    push rbp
    push rax
    jmp 1f
    .balign 64
1:  mov rbx, rdi
    mov rax, rdi
    cmp rdi, 2
    jl 2f
    lea rdi, [rbx - 1]
    call traced_fib
    mov rbp, rax
    lea rdi, [rbx - 2]
    call traced_fib
    add rax, rbp
2:  pop rcx
    pop rbp
    pop rbx
    ret
    .section .note.GNU-stack, "", @progbits
