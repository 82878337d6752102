/* The return of a call whose users have frugal handlers: see frugal.h. */
#ifndef SHADOWGRAPH_FRUGAL_RETURN_H
#define SHADOWGRAPH_FRUGAL_RETURN_H

#include "frugal.h"

    .macro LEFT_FRUGAL                       /* back to what sg_return has in its registers */
    mov qword ptr [r9 + SHARED_INSIDE], 0
    mov rcx, r10
    mov rdx, r8
    mov r8, [rsp - 72]
    mov r9, [rsp - 80]
    mov r10, [rsp - 88]
    .endm

/* rcx: the frame, rdx: its open call; the rest is as in sg_return. */
    .macro FRUGAL_RETURN
.Lreturn_frugal:
    THREAD rsi, rax, .Lreturn_slow
    cmp rcx, [rsi + THREAD_TOP]
    jne .Lreturn_slow
    mov rax, [rcx + FRAME_TARGET]            /* a frame, if others have been tail-called from this function */
    lea rdi, [rip + sg_frames]
    sub rax, rdi
    cmp rax, SG_STRIDE * SG_FRAMES
    jb .Lreturn_slow
    mov rdi, [rip + sg_registry]
    cmp dword ptr [rdi + REGISTRY_HAS_ORDER], 0
    jne .Lreturn_slow
    cmp qword ptr [rdi + REGISTRY_WITH_INSTANCES], 0
    jne .Lreturn_slow
    mov rax, [rsi + THREAD_SHARED]
    cmp qword ptr [rax + SHARED_INSIDE], 0
    jne .Lreturn_slow
    mov [rsp - 72], r8
    mov [rsp - 80], r9
    mov [rsp - 88], r10
    mov r8, rsi
    mov r9, rax
    mov r10, rcx
    mov rsi, [rdx + OPEN_USERS]
    bsr rcx, rsi
    lea rdx, [rsp + KEPT]
    sub rsp, RETURN_SIZE
    .cfi_adjust_cfa_offset RETURN_SIZE
    mov [r9 + SHARED_INSIDE_STACK], rdx
    INSIDE_FRUGAL
    mov [r9 + SHARED_INSIDE_STACK], rdx
    mov qword ptr [rsp + CALL_FUNCTION], 0
    mov qword ptr [rsp + DURATION], -1       /* too long: for the slow path, which looks at the clock */
    test rsi, [rdi + REGISTRY_TIMED_AT_EXIT]
    jnz .Lfrugal_end
.Lfrugal_leave_one:                          /* rcx: the last of rsi */
    btr rsi, rcx
    mov [rsp + REST], rsi
    UNLESS_THERE .Lfrugal_leave_next
    USER_LOOKS USER_EXIT_LOOKS, .Lfrugal_not_here_to_leave
    jnz .Lfrugal_tell_exit
.Lfrugal_leave_told:
    RUN_FRUGAL USER_EXIT
.Lfrugal_leave_next:
    mov rsi, [rsp + REST]
    test rsi, rsi
    jnz .Lfrugal_leave_more
.Lfrugal_left:
    add rsp, RETURN_SIZE
    .cfi_adjust_cfa_offset -RETURN_SIZE
    LEFT_FRUGAL
    jmp .Lreturn_free

    .cfi_adjust_cfa_offset RETURN_SIZE
.Lfrugal_leave_more:
    mov rdi, [rip + sg_registry]
    bsr rcx, rsi
    test ecx, ecx
    jz .Lfrugal_leave_first
.Lfrugal_leave_announced:
    INSIDE_FRUGAL
    jmp .Lfrugal_leave_one
.Lfrugal_not_here_to_leave:
    MISSED_HERE
    jmp .Lfrugal_leave_next
.Lfrugal_end:
    NOW
    mov rdx, [r10 + FRAME_OPEN]
    add rax, [r10 + FRAME_BIAS]
    sub rax, [rdx]
    mov [rsp + CALL_DURATION], rax
    mov [rsp + DURATION], rax
    jmp .Lfrugal_leave_one
.Lfrugal_leave_first:                        /* slot 0, the last of all: the recorder's, if there is one */
    test byte ptr [rdi + REGISTRY_RECORDERS], 1
    jz .Lfrugal_leave_announced
    mov qword ptr [r9 + SHARED_INSIDE], 0
    mov rax, [rsp + DURATION]
    cmp rax, [rip + sg_minimal_ticks]
    jb .Lfrugal_record_slowly
    cmp rax, [rip + .Llong]
    jae .Lfrugal_record_slowly
    RESERVE .Lfrugal_record_slowly, [r8 + THREAD_POSITION]
    mov rdx, [r10 + FRAME_OPEN]
    mov rsi, [rdx]
    mov [rdi], rsi
    shl rax, SG_FUNCTION_BITS
    mov rsi, [r10 + FRAME_FUNCTION]
    mov esi, [rsi + FUNCTION_ID]
    or rax, rsi
    mov [rdi + 8], rax
    jmp .Lfrugal_left
.Lfrugal_record_slowly:                      /* nobody but the recorder is left */
    mov rax, [r10 + FRAME_OPEN]
    mov qword ptr [rax + OPEN_USERS], 1
    add rsp, RETURN_SIZE
    .cfi_adjust_cfa_offset -RETURN_SIZE
    LEFT_FRUGAL
    jmp .Lreturn_slow
    .cfi_adjust_cfa_offset RETURN_SIZE
.Lfrugal_tell_exit:
    cmp qword ptr [rsp + CALL_FUNCTION], 0
    jne .Lfrugal_leave_data
    mov rax, [rsp + RETURN_SIZE - 16]
    mov [rsp + CALL_RESULT], rax
    mov rax, [rsp + RETURN_SIZE - 24]
    mov [rsp + CALL_RESULT + 8], rax
    mov rax, [r10 + FRAME_ORIGINAL]
    mov [rsp + CALL_RETURN_ADDRESS], rax
    xor eax, eax
    mov [rsp + CALL_ARGUMENTS], rax
    mov [rsp + CALL_STACK], rax
    TELL_OF_THREAD
    mov rax, [r10 + FRAME_OPEN]
    mov rax, [rax]
    sub rax, [r10 + FRAME_BIAS]
    mov [rsp + CALL_TIME], rax
    mov rax, [r10 + FRAME_FUNCTION]
    mov eax, [rax + FUNCTION_ID]
    mov [rsp + CALL_FUNCTION], rax
.Lfrugal_leave_data:                         /* as sg_area_part */
    mov ecx, [rsi + USER_DATA_SIZE]
    xor eax, eax
    mov [rsp + CALL_DATA_SIZE], rcx
    test ecx, ecx
    jz 1f
    AREA_OF_FRAME
    mov ecx, [r9 + SHARED_INSIDE]
    movzx edx, word ptr [rax + 2 * rcx + AREA_AT - 2]
    add rax, rdx
1:  mov [rsp + CALL_DATA], rax
    jmp .Lfrugal_leave_told
    .cfi_adjust_cfa_offset -RETURN_SIZE
    .endm

#endif
