/*
 * The ways of a call whose users have frugal handlers (struct sg_registry: frugal), and beside these, if anybody, counters without
 * a condition and the recorder that the plain paths serve: entry path and return path, without C code in between. Such handlers
 * call nothing, and change no registers but rax, rcx, rdx, rsi, rdi and the flags of arithmetic: the controller has looked at
 * their instructions (src/shadowgraph/ops/handler_code.py). So only what these paths themselves use is saved, and what they
 * need behind a handler is still in r8 to r11, even if it was left where it faulted.
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

    .macro AREA_OF_FRAME                     /* of r10, into rax; see areas.c */
    lea rdx, [rip + sg_frames]
    mov rax, r10
    sub rax, rdx
    shl rax, AREA_SHIFT
    add rax, [rip + sg_areas]
    .endm

#endif
