/* The return of a call whose users have frugal handlers: see frugal.h. */
#ifndef SHADOWGRAPH_FRUGAL_RETURN_H
#define SHADOWGRAPH_FRUGAL_RETURN_H

#include "frugal.h"

    .macro LEFT_FRUGAL                       /* back to what sg_return has in its registers */
    mov qword ptr [r9 + SHARED_INSIDE], 0
    mov rcx, r10
    THREAD_AGAIN rdx
    mov r9, [rsp - 80]
    mov r10, [rsp - 88]
    .endm

/* The exit handlers of the users rsi, the last of which is number rcx; see ENTRY_HANDLERS. They are here, or their entry had told. */
    .macro EXIT_HANDLERS way, told
.Lfrugal_leave_\way:
    btr rsi, rcx
    mov [rsp + REST], rsi
    mov rax, [r10 + FRAME_OPEN]
    UNLESS_THERE [rax + OPEN_EPOCH], .Lfrugal_left_\way
    USER
    .if \told
    EXIT_DATA
    .endif
    mov rdi, rsp
    call [rsi + USER_EXIT]
.Lfrugal_left_\way:
    mov rsi, [rsp + REST]
    test rsi, rsi
    jnz .Lfrugal_leave_more_\way
    .endm

    .macro EXIT_HANDLERS_MORE way, recorder
.Lfrugal_leave_more_\way:
    mov rdi, [rip + sg_registry]
    bsr rcx, rsi
    .if \recorder
    test ecx, ecx
    jnz 1f
    test byte ptr [rdi + REGISTRY_RECORDERS], 1
    jnz .Lfrugal_record                      /* slot 0, the last of all */
1:
    .endif
    INSIDE_NEXT
    jmp .Lfrugal_leave_\way
    .endm

    .macro EXIT_DATA                         /* as sg_area_part */
    mov ecx, [rsi + USER_DATA_SIZE]
    xor eax, eax
    mov [rsp + CALL_DATA_SIZE], rcx
    test ecx, ecx
    jz 1f
    AREA_OF_FRAME
    INSIDE_WHOSE ecx
    movzx edx, word ptr [rax + 2 * rcx + AREA_AT - 2]
    add rax, rdx
1:  mov [rsp + CALL_DATA], rax
    .endm

    .macro FRAME_TO_LEAVE                    /* rdx: the users of the call, then rsi, and the last of them rcx */
    bsr rcx, rdx
    INSIDE_FRUGAL
    NOTE_WAY_OUT rsi, RETURN_SIZE
    mov rsi, rdx
    sub rsp, RETURN_SIZE
    .cfi_adjust_cfa_offset RETURN_SIZE
    .endm

/* rcx: the frame, rdx: its open call; the rest is as in sg_return. From this function nothing has been tail-called: enter_tail. */
    .macro FRUGAL_RETURN
    THREAD rsi, rax, .Lreturn_slow
    cmp rcx, [rsi + THREAD_TOP]
    jne .Lreturn_slow
    mov rdi, [rip + sg_registry]
    mov rax, [rsi + THREAD_SHARED]
    cmp qword ptr [rax + SHARED_INSIDE], 0
    jne .Lreturn_slow
    mov [rsp - 80], r9
    mov [rsp - 88], r10
    mov r9, rax
    mov r10, rcx
    mov rdx, [rdx + OPEN_USERS]
    test rdx, [rdi + REGISTRY_LOUD_AT_EXIT]
    jnz .Lfrugal_leave_loud
    FRAME_TO_LEAVE
    EXIT_HANDLERS quiet, 0
.Lfrugal_left:
    add rsp, RETURN_SIZE
    .cfi_adjust_cfa_offset -RETURN_SIZE
    LEFT_FRUGAL
    GIVE_BACK_FRAME .Lreturn_not_top
    TO_CALLER

    .cfi_adjust_cfa_offset RETURN_SIZE
    EXIT_HANDLERS_MORE quiet, 0              /* whose slot 0 is a handler's, or nobody's any more */
    EXIT_HANDLERS_MORE untold, 1
    EXIT_HANDLERS_MORE told, 1
    .cfi_adjust_cfa_offset -RETURN_SIZE
.Lfrugal_leave_loud:                         /* there are users that look at the call or the clock, or no handlers */
    cmp qword ptr [rdi + REGISTRY_QUICK_FRUGAL], 0
    je .Lfrugal_take_back
    FRAME_TO_LEAVE
    test rsi, [rdi + REGISTRY_TIMED_AT_EXIT]
    jnz .Lfrugal_end
    test sil, 1
    jnz .Lfrugal_no_end
.Lfrugal_ended:
    test rsi, [rdi + REGISTRY_TOLD_AT_EXIT]
    jnz .Lfrugal_tell_exit
    EXIT_HANDLERS untold, 0
    jmp .Lfrugal_left
    .cfi_adjust_cfa_offset -RETURN_SIZE
.Lfrugal_take_back:                          /* their order, or instances: not for here */
    mov rcx, r10
    mov r9, [rsp - 80]
    mov r10, [rsp - 88]
    jmp .Lreturn_slow
    .cfi_adjust_cfa_offset RETURN_SIZE
.Lfrugal_end:
    NOW
    mov rdx, [r10 + FRAME_OPEN]
    add rax, [r10 + FRAME_BIAS]
    sub rax, [rdx]
    mov [rsp + CALL_DURATION], rax
    mov [rsp + DURATION], rax
    jmp .Lfrugal_ended
.Lfrugal_no_end:                             /* slot 0 is whose end is not timed, but may have a recorder by the time it is looked at */
    mov qword ptr [rsp + DURATION], -1       /* too long: for the slow path, which looks at the clock */
    jmp .Lfrugal_ended
.Lfrugal_record:
    mov qword ptr [r9 + SHARED_INSIDE], 0
    mov rax, [rsp + DURATION]
    cmp rax, [rip + sg_minimal_ticks]
    jb .Lfrugal_record_slowly
    cmp rax, [rip + .Llong]
    jae .Lfrugal_record_slowly
    THREAD_AGAIN rsi
    RESERVE .Lfrugal_record_slowly, [rsi + THREAD_POSITION]
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
    EXIT_HANDLERS told, 1
    jmp .Lfrugal_left
    .cfi_adjust_cfa_offset -RETURN_SIZE
    .endm

#endif
