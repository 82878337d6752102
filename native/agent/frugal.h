/*
 * The ways of a call whose users have frugal handlers (struct sg_registry: frugal), and beside these, if anybody, counters without
 * a condition and the recorder that the plain paths serve: entry path and return path, without C code in between. Such handlers call nothing, and change no registers but rax, rcx, rdx, rsi, rdi and the flags of arithmetic:
 * the controller has looked at their instructions (src/shadowgraph/ops/handler_code.py). So only what these paths themselves use
 * is saved, and what they need behind a handler is still in r8 to r11, even if it was left where it faulted.
 *
 * What a thread says of itself meanwhile is `inside` alone: as long as it does so, the user's slot and its code are nobody
 * else's (using.h, handling.h). Whatever is out of the ordinary goes on to the general paths.
 *
 * To what paths.S draws, these add r8 at -72, r9 at -80, r10 at -88, from the slot or, at the return, from rsp.
 */
#ifndef SHADOWGRAPH_FRUGAL_H
#define SHADOWGRAPH_FRUGAL_H

/*
 * The frame on the C stack while handlers run. First the call that they are told, if one of them looks at it: by then it has
 * the number of a function, which is never 0.
 */
#define REST CALL_SIZE                    /* the users whose turn is still to come, a bit each */
#define ENTRY_ARGUMENTS (CALL_SIZE + 8)   /* six of them */
#define DURATION (CALL_SIZE + 8)          /* at the return, for the recorder: no handler can have changed it */
#define ENTRY_SIZE (CALL_SIZE + 152)      /* keeps the stack aligned, as does the other one */
#define RETURN_SIZE (CALL_SIZE + 112)
#define KEPT -96                          /* lies above the frame, and below all that is kept */

/* Says that the thread whose shared state r9 is is in the handler of the user with number rcx; see sg_handling_announce. */
    .macro INSIDE_FRUGAL
    lea eax, [rcx + 1]
    mov [r9 + SHARED_INSIDE], rax
    .endm

/* After that, whether this user is there, and no younger than the call; rdi is the registry. See sg_handling_run. */
    .macro UNLESS_THERE gone
    mov rdx, [rdi + REGISTRY_FAULTED]
    mov rax, [rdi + REGISTRY_LIVE]
    bt rdx, rcx
    jc \gone
    bt rax, rcx
    jnc \gone
    mov rax, [r10 + FRAME_OPEN]
    mov rax, [rax + OPEN_EPOCH]
    cmp rax, [rdi + 8 * rcx + REGISTRY_EPOCHS]
    jb \gone
    .endm

/* The user with number rcx into rsi, if its handlers are in this process, and the flags of whether its handler looks at the call. */
    .macro USER_LOOKS flag, absent
    lea rdx, [rip + sg_handlers_here]
    mov rdx, [rdx + 8 * rcx]
    imul ecx, ecx, USER_SIZE
    lea rsi, [rdi + rcx + REGISTRY_USERS]
    cmp rdx, [rsi + USER_CODE_NUMBER]
    jne \absent
    test dword ptr [rsi + USER_FLAGS], \flag
    .endm

/* The user whose number, + 1, `inside` is misses the call: as sg_users_missed. */
    .macro MISSED_HERE
    mov eax, [r8 + THREAD_INDEX]
    shl eax, USERS_SHIFT
    add eax, [r9 + SHARED_INSIDE]
    dec eax
    shl rax, LOSSES_SHIFT
    add rax, [rip + sg_losses]
    inc qword ptr [rax + LOSSES_MISSED]
    .endm

/* Calls a handler of the user rsi. If it faults it is left as if it had returned: sg_guard_decide. */
    .macro RUN_FRUGAL handler
    lea rax, [rsp - 8 + WAY_OUT_FRUGAL]      /* where the call puts its return address */
    mov [r8 + THREAD_WAY_OUT], rax
    mov rdi, rsp
    call [rsi + \handler]
    .endm

    .macro TELL_OF_THREAD
    mov eax, [r8 + THREAD_TID]
    mov [rsp + CALL_THREAD], eax
    mov eax, [r9 + SHARED_PID]
    mov [rsp + CALL_PROCESS], eax
    .endm

    .macro TAKE_BACK_ENTRY
    mov rdi, [rsp - 56]
    mov rsi, [rsp - 64]
    mov r8, [rsp - 72]
    mov r9, [rsp - 80]
    mov r10, [rsp - 88]
    .endm

    .macro AREA_OF_FRAME                     /* of r10, into rax; see areas.c */
    lea rdx, [rip + sg_frames]
    mov rax, r10
    sub rax, rdx
    shl rax, AREA_SHIFT
    add rax, [rip + sg_areas]
    .endm

    .macro LEFT_FRUGAL                       /* back to what sg_return has in its registers */
    mov qword ptr [r9 + SHARED_INSIDE], 0
    mov rcx, r10
    mov rdx, r8
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
