/* The entry of a call whose users have frugal handlers: see frugal.h. */
#ifndef SHADOWGRAPH_FRUGAL_ENTRY_H
#define SHADOWGRAPH_FRUGAL_ENTRY_H

#include "frugal.h"

    .macro TAKE_BACK_ENTRY
    mov rdi, [rsp - 56]
    mov rsi, [rsp - 64]
    mov r8, [rsp - 72]
    mov r9, [rsp - 80]
    mov r10, [rsp - 88]
    .endm

    .macro FRUGAL_ENTRY
    .globl sg_enter_frugal
    .hidden sg_enter_frugal
sg_enter_frugal:
    SAVE_AT_ENTRY
    RETURN_ADDRESS_OR .Lenter_slow
    lea eax, [rsp + 8]
    test al, 15
    jnz .Lenter_slow                         /* who calls so is no compiler, whose handlers rely on it */
    THREAD rdx, rcx, .Lenter_slow
    mov [rsp - 56], rdi
    mov [rsp - 64], rsi
    mov [rsp - 72], r8
    mov [rsp - 80], r9
    mov [rsp - 88], r10
    mov rdi, [rip + sg_registry]
1:  mov r8, [rdi + REGISTRY_EPOCH]           /* whose call it is: sg_users_of */
    mov ecx, [rdi + REGISTRY_SIDE]
    mov eax, ecx
    and eax, 1
    mov rsi, [r11 + 8 * rax + FUNCTION_USERS]
    and rsi, [rdi + REGISTRY_ARMED]
    cmp ecx, [rdi + REGISTRY_SIDE]
    jne 1b
    cmp r8, [rdi + REGISTRY_EPOCH]
    jne 1b
    mov r10, [rdi + REGISTRY_FRUGAL]
    and r10, rsi
    jz .Lfrugal_to_slow                      /* nobody, by now */
    cmp dword ptr [rdi + REGISTRY_HAS_ORDER], 0
    jne .Lfrugal_to_slow
    cmp qword ptr [rdi + REGISTRY_WITH_INSTANCES], 0
    jne .Lfrugal_to_slow
    mov r9, [rdx + THREAD_SHARED]
    test r9, r9
    jz .Lfrugal_to_slow                      /* a forked child */
    cmp qword ptr [r9 + SHARED_INSIDE], 0
    jne .Lfrugal_to_slow
    test r10, [rdi + REGISTRY_WITH_DATA]
    jnz .Lfrugal_keeping
.Lfrugal_kept:
    cmp r10, rsi
    jne .Lfrugal_beside
.Lfrugal_take:
    TAKE_FRAME .Lfrugal_to_slow
.Lfrugal_taken:                              /* rsi: whose exits may be wanted, r10: those of them with handlers */
    mov rax, [rcx + FRAME_OPEN]
    mov [rax + OPEN_EPOCH], r8
    mov [rax + OPEN_USERS], rsi
    mov rsi, r10
    mov r10, rcx
    mov r8, rdx
    WRITE_FRAME r10                          /* now: a signal handler may leave a handler by longjmp, and the frame must go then */
    lea rdx, [rsp + KEPT]
    sub rsp, ENTRY_SIZE
    .cfi_adjust_cfa_offset ENTRY_SIZE
    bsf rcx, rsi
    mov [r9 + SHARED_INSIDE_STACK], rdx
    INSIDE_FRUGAL
    mov [r9 + SHARED_INSIDE_STACK], rdx      /* once more: a signal handler between the two may have had its own */
    mov qword ptr [rsp + CALL_FUNCTION], 0
    test rsi, [rdi + REGISTRY_TOLD_TIME]
    jnz .Lfrugal_look_at_clock
.Lfrugal_enter_one:                          /* rcx: the first of rsi */
    lea rax, [rsi - 1]
    and rax, rsi
    mov [rsp + REST], rax
    UNLESS_THERE .Lfrugal_not_wanted
    USER_LOOKS USER_ENTRY_LOOKS, .Lfrugal_not_here
    jnz .Lfrugal_tell_entry
.Lfrugal_enter_told:
    cmp qword ptr [rsi + USER_ENTRY], 0
    je .Lfrugal_enter_next
    RUN_FRUGAL USER_ENTRY
    test eax, eax
    jz .Lfrugal_not_wanted
.Lfrugal_enter_next:
    mov rsi, [rsp + REST]
    test rsi, rsi
    jnz .Lfrugal_enter_more
    add rsp, ENTRY_SIZE
    .cfi_adjust_cfa_offset -ENTRY_SIZE
    mov qword ptr [r9 + SHARED_INSIDE], 0
    mov rsi, [r10 + FRAME_OPEN]
    mov rcx, [rsi + OPEN_USERS]
    test rcx, rcx
    jz .Lfrugal_unwanted
    mov rdi, [rip + sg_registry]
    test rcx, [rdi + REGISTRY_TIMED]
    jnz .Lfrugal_stamp
    inc qword ptr [rsi]                      /* see sg_open_begin */
.Lfrugal_stamped:
    mov eax, [r11 + FUNCTION_ID]
    cmp rcx, 1
    je .Lfrugal_first_alone
.Lfrugal_marked:
    movabs rdx, OPEN_USERS_MARK | OPEN_FRUGAL_MARK
    or rax, rdx
.Lfrugal_open:
    mov [rsi + OPEN_FUNCTION], rax           /* from here on controllers see the call as open */
    mov rcx, r10
    TAKE_BACK_ENTRY
    jmp .Lenter_go

.Lfrugal_stamp:
    NOW
    add rax, [r10 + FRAME_BIAS]
    mov [rsi], rax
    jmp .Lfrugal_stamped

.Lfrugal_first_alone:                        /* who has slot 0: if that is the recorder, the call is as plain as any */
    test byte ptr [rdi + REGISTRY_RECORDERS], 1
    jz .Lfrugal_marked
    jmp .Lfrugal_open

.Lfrugal_unwanted:
    mov qword ptr [r10 + FRAME_SLOT], SG_SLOT_FREE
    mov rax, r10
    lea rcx, [r10 - SG_STRIDE]
    cmpxchg [r8 + THREAD_TOP], rcx
    je 2f
    mov qword ptr [r10 + FRAME_SLOT], SG_SLOT_RETURNED /* a signal handler has left calls on top of it: see sg_retire */
2:  TAKE_BACK_ENTRY
    jmp .Lenter_pass

.Lfrugal_to_slow:
    TAKE_BACK_ENTRY
    jmp .Lenter_slow

.Lfrugal_keeping:                            /* the first call of all makes room for what is kept (areas.c) */
    cmp qword ptr [rip + sg_areas], 0
    jne .Lfrugal_kept
    jmp .Lfrugal_to_slow

/* Others beside them. Who is counted is, when there is no way back to the slow path any more, which would count it once more. */
.Lfrugal_beside:
    test rsi, [r11 + FUNCTION_CALLERS]
    jnz .Lfrugal_to_slow
    mov rcx, rsi
    xor rcx, r10
    mov rsi, [rdi + REGISTRY_COUNTERS]
    mov rax, rcx
    and rcx, rsi                             /* counters */
    xor rax, rcx                             /* the rest: the recorder, or it is not for here */
    lea rsi, [r10 + rax]
    jz .Lfrugal_unrecorded
    cmp rax, 1
    jne .Lfrugal_to_slow
    mov rax, [rdi + REGISTRY_SIMPLE]
    and rax, [rdi + REGISTRY_RECORDERS]
    test al, 1
    jz .Lfrugal_to_slow
.Lfrugal_unrecorded:
    test rcx, rcx
    jz .Lfrugal_take
    mov rcx, [rdx + THREAD_PAGES]
    test rcx, rcx
    jz .Lfrugal_to_slow
    mov eax, [r11 + FUNCTION_CELL]
    shr eax, PAGE_CELLS_SHIFT
    cmp qword ptr [rcx + 8 * rax], 0
    je .Lfrugal_to_slow
    TAKE_FRAME .Lfrugal_to_slow
    mov eax, [r11 + FUNCTION_CELL]
    mov edi, eax
    shr edi, PAGE_CELLS_SHIFT
    and eax, PAGE_CELLS_MASK
    shl rdi, 3
    add rdi, [rdx + THREAD_PAGES]
    mov rdi, [rdi]
    inc qword ptr [rdi + 8 * rax]
    mov rdi, [rip + sg_registry]
    jmp .Lfrugal_taken

    .cfi_adjust_cfa_offset ENTRY_SIZE
.Lfrugal_not_here:
    MISSED_HERE
.Lfrugal_not_wanted:                         /* by the one whose number, + 1, `inside` is, or not there any more */
    mov rcx, [r9 + SHARED_INSIDE]
    dec ecx
    mov rsi, [r10 + FRAME_OPEN]
    mov rax, [rsi + OPEN_USERS]
    btr rax, rcx
    mov [rsi + OPEN_USERS], rax
    jmp .Lfrugal_enter_next
.Lfrugal_enter_more:
    mov rdi, [rip + sg_registry]
    bsf rcx, rsi
    INSIDE_FRUGAL
    jmp .Lfrugal_enter_one
.Lfrugal_look_at_clock:
    NOW
    mov [rsp + CALL_TIME], rax
    jmp .Lfrugal_enter_one
.Lfrugal_tell_entry:
    cmp qword ptr [rsp + CALL_FUNCTION], 0
    jne .Lfrugal_enter_data
    mov rax, [rsp + ENTRY_SIZE - 56]
    mov [rsp + ENTRY_ARGUMENTS], rax
    mov rax, [rsp + ENTRY_SIZE - 64]
    mov [rsp + ENTRY_ARGUMENTS + 8], rax
    mov rax, [rsp + ENTRY_SIZE - 24]
    mov [rsp + ENTRY_ARGUMENTS + 16], rax
    mov rax, [rsp + ENTRY_SIZE - 32]
    mov [rsp + ENTRY_ARGUMENTS + 24], rax
    mov rax, [rsp + ENTRY_SIZE - 72]
    mov [rsp + ENTRY_ARGUMENTS + 32], rax
    mov rax, [rsp + ENTRY_SIZE - 80]
    mov [rsp + ENTRY_ARGUMENTS + 40], rax
    lea rax, [rsp + ENTRY_ARGUMENTS]
    mov [rsp + CALL_ARGUMENTS], rax
    lea rax, [rsp + ENTRY_SIZE + 8]
    mov [rsp + CALL_STACK], rax
    mov rax, [rsp + ENTRY_SIZE]
    mov [rsp + CALL_RETURN_ADDRESS], rax
    xor eax, eax
    mov [rsp + CALL_RESULT], rax
    mov [rsp + CALL_RESULT + 8], rax
    mov [rsp + CALL_DURATION], rax
    TELL_OF_THREAD
    mov eax, [r11 + FUNCTION_ID]
    mov [rsp + CALL_FUNCTION], rax
    cmp qword ptr [rip + sg_areas], 0
    je .Lfrugal_enter_data
    AREA_OF_FRAME                            /* as sg_area_begin */
    mov word ptr [rax + AREA_USED], AREA_FIRST
    mov qword ptr [rax + AREA_HOLDING], 0
    mov rdx, [r10 + FRAME_OPEN]
    mov rdx, [rdx + OPEN_EPOCH]
    mov [rax + AREA_EPOCH], rdx
.Lfrugal_enter_data:                         /* as sg_area_take; there is room for all of them */
    mov ecx, [rsi + USER_DATA_SIZE]
    xor eax, eax
    mov [rsp + CALL_DATA_SIZE], rcx
    test ecx, ecx
    jz 1f
    AREA_OF_FRAME
    movzx edx, word ptr [rax + AREA_USED]
    lea ecx, [rcx + rdx + 15]
    and ecx, -16
    mov [rax + AREA_USED], cx
    mov ecx, [r9 + SHARED_INSIDE]
    mov [rax + 2 * rcx + AREA_AT - 2], dx
    add rax, rdx
1:  mov [rsp + CALL_DATA], rax
    jmp .Lfrugal_enter_told
    .cfi_adjust_cfa_offset -ENTRY_SIZE
    .endm

#endif
