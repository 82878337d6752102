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

/* The entry handlers of the users rsi, the first of which is number rcx. In two ways: of users that look at the call, and others. */
    .macro ENTRY_HANDLERS way, quiet, told
.Lfrugal_\way:
    mov [rsp + REST], rsi
    UNLESS_THERE r8, .Lfrugal_\way\()_unwanted
    cmp rdx, [rip + sg_handlers_here + HANDLERS_EPOCH]
    ja .Lfrugal_\way\()_elsewhere
.Lfrugal_\way\()_here:
    USER
    .if \told
    ENTRY_DATA
    .endif
    mov rdi, rsp
    .if \quiet
    call [rsi + USER_ENTRY]
    .else
    mov rax, [rsi + USER_ENTRY]
    test rax, rax
    jz .Lfrugal_\way\()_next
    call rax
    .endif
    test eax, eax
    jz .Lfrugal_\way\()_unwanted
.Lfrugal_\way\()_next:
    mov rsi, [rsp + REST]
    lea rax, [rsi - 1]
    and rsi, rax
    jnz .Lfrugal_\way\()_more
    .endm

    .macro ENTRY_HANDLERS_GONE way           /* what there is besides */
.Lfrugal_\way\()_more:
    mov rdi, [rip + sg_registry]
    bsf rcx, rsi
    INSIDE_NEXT
    jmp .Lfrugal_\way
.Lfrugal_\way\()_elsewhere:                 /* they came to another process, or to this one while others came to another */
    lea rdx, [rip + sg_handlers_here + HANDLERS_NUMBERS]
    mov rdx, [rdx + 8 * rcx]
    imul eax, ecx, USER_SIZE
    cmp rdx, [rdi + rax + REGISTRY_USERS + USER_CODE_NUMBER]
    je .Lfrugal_\way\()_here
    MISSED_HERE
.Lfrugal_\way\()_unwanted:                  /* by the one whose number, + 1, `inside` says, or not there any more */
    INSIDE_WHOSE ecx
    dec ecx
    mov rsi, [r10 + FRAME_OPEN]
    mov rax, [rsi + OPEN_USERS]
    btr rax, rcx
    mov [rsi + OPEN_USERS], rax
    test rax, rax
    jnz .Lfrugal_\way\()_next
    jmp .Lfrugal_unwanted
    .endm

    .macro ENTRY_DATA                        /* as sg_area_take; there is room for all of them */
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
    INSIDE_WHOSE ecx
    mov [rax + 2 * rcx + AREA_AT - 2], dx
    add rax, rdx
1:  mov [rsp + CALL_DATA], rax
    .endm

/*
 * The frame rcx is that of this call, and that on the C stack is made. rsi: whose exits may be wanted, `handlers`: those of
 * them with handlers, if others are among them. These are then rsi, and the first of them rcx; the frame is r10.
 */
    .macro FRAME_FOR_HANDLERS handlers
    mov rax, [rcx + FRAME_OPEN]
    mov [rax + OPEN_EPOCH], r8
    mov [rax + OPEN_USERS], rsi
    .ifnb \handlers
    mov rsi, \handlers
    .endif
    mov r10, rcx
    WRITE_FRAME r10                          /* now: a signal handler may leave a handler by longjmp, and the frame must go then */
    bsf rcx, rsi
    INSIDE_FRUGAL
    NOTE_WAY_OUT rdx, ENTRY_SIZE
    sub rsp, ENTRY_SIZE
    .cfi_adjust_cfa_offset ENTRY_SIZE
    .endm

    .macro HANDLERS_ENTERED                  /* rsi: the open call */
    add rsp, ENTRY_SIZE
    .cfi_adjust_cfa_offset -ENTRY_SIZE
    mov qword ptr [r9 + SHARED_INSIDE], 0
    mov rsi, [r10 + FRAME_OPEN]
    .endm

    .macro FRUGAL_ENTRY
    .globl sg_enter_frugal
    .hidden sg_enter_frugal
    .balign 64
sg_enter_frugal:
    SAVE_AT_ENTRY
    RETURN_ADDRESS_OR .Lenter_slow
    THREAD rdx, rcx, .Lenter_slow
    mov [rsp - 56], rdi
    mov [rsp - 64], rsi
    mov [rsp - 72], r8
    mov [rsp - 80], r9
    mov [rsp - 88], r10
    mov rdi, [rip + sg_registry]
1:  mov r8, [rdi + REGISTRY_EPOCH]           /* whose call it is: sg_users_of */
    mov eax, [rdi + REGISTRY_SIDE]
    mov rsi, [r11 + 8 * rax + FUNCTION_USERS]
    and rsi, [rdi + REGISTRY_ARMED]
    cmp r8, [rdi + REGISTRY_EPOCH]
    jne 1b
    TOP_OR .Lfrugal_to_slow
    mov r9, [rdx + THREAD_SHARED]
    lea ecx, [rsp + 8]
    and ecx, 15                              /* who calls with such a stack is no compiler, whose handlers rely on another */
    or rcx, [r9 + SHARED_INSIDE]
    jnz .Lfrugal_to_slow
    test rsi, [rdi + REGISTRY_LOUD_AT_ENTRY]
    jnz .Lfrugal_loud
    test rsi, rsi
    jz .Lfrugal_to_slow                      /* nobody, by now */
    TAKE_FRAME_ABOVE .Lfrugal_to_slow, .Lfrugal_to_slow
    FRAME_FOR_HANDLERS
    ENTRY_HANDLERS quiet, 1, 0
    HANDLERS_ENTERED
    inc qword ptr [rsi]                      /* see sg_open_begin */
    mov eax, [r11 + FUNCTION_ID]
.Lfrugal_marked:
    movabs rdx, OPEN_USERS_MARK | OPEN_FRUGAL_MARK
    or rax, rdx
.Lfrugal_open:
    mov [rsi + OPEN_FUNCTION], rax           /* from here on controllers see the call as open */
    mov rcx, r10
    TAKE_BACK_ENTRY
    TO_SITE_OF_FRAME

.Lfrugal_loud:                               /* there are users that look at the call or the clock, or no handlers */
    mov r10, [rdi + REGISTRY_QUICK_FRUGAL]
    and r10, rsi
    jz .Lfrugal_to_slow
    test r10, [rdi + REGISTRY_WITH_DATA]
    jnz .Lfrugal_keeping
.Lfrugal_kept:
    cmp r10, rsi
    jne .Lfrugal_beside
.Lfrugal_take:
    TAKE_FRAME .Lfrugal_to_slow, .Lfrugal_to_slow
.Lfrugal_taken:                              /* rsi: whose exits may be wanted, r10: those of them with handlers */
    FRAME_FOR_HANDLERS r10
    test rsi, [rdi + REGISTRY_TOLD_AT_ENTRY]
    jnz .Lfrugal_tell_entry
    ENTRY_HANDLERS untold, 0, 0
.Lfrugal_entered:
    HANDLERS_ENTERED
    mov rcx, [rsi + OPEN_USERS]
    mov rdi, [rip + sg_registry]
    test rcx, [rdi + REGISTRY_TIMED]
    jnz .Lfrugal_stamp
    inc qword ptr [rsi]
.Lfrugal_stamped:
    mov eax, [r11 + FUNCTION_ID]
    cmp rcx, 1
    jne .Lfrugal_marked
    test byte ptr [rdi + REGISTRY_RECORDERS], 1 /* who has slot 0: if that is the recorder, the call is as plain as any */
    jz .Lfrugal_marked
    jmp .Lfrugal_open

.Lfrugal_stamp:
    NOW
    add rax, [r10 + FRAME_BIAS]
    mov [rsi], rax
    jmp .Lfrugal_stamped

    .cfi_adjust_cfa_offset ENTRY_SIZE
.Lfrugal_unwanted:                           /* by all */
    HANDLERS_ENTERED
    mov qword ptr [r10 + FRAME_SLOT], SG_SLOT_FREE
    mov rax, r10
    lea rcx, [r10 - SG_STRIDE]
    THREAD_AGAIN rdx
    cmpxchg [rdx + THREAD_TOP], rcx
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
    TAKE_FRAME .Lfrugal_to_slow, .Lfrugal_to_slow
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
.Lfrugal_tell_entry:
    test rsi, [rdi + REGISTRY_TOLD_TIME]
    jz 1f
    NOW
    mov [rsp + CALL_TIME], rax
1:  mov rax, [rsp + ENTRY_SIZE - 56]
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
    je 1f
    AREA_OF_FRAME                            /* as sg_area_begin */
    mov word ptr [rax + AREA_USED], AREA_FIRST
    mov qword ptr [rax + AREA_HOLDING], 0
    mov [rax + AREA_EPOCH], r8
1:  ENTRY_HANDLERS told, 0, 1
    jmp .Lfrugal_entered
    ENTRY_HANDLERS_GONE quiet
    ENTRY_HANDLERS_GONE untold
    ENTRY_HANDLERS_GONE told
    .cfi_adjust_cfa_offset -ENTRY_SIZE
    .endm

#endif
