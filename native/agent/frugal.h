/*
 * The ways of a call whose users have frugal handlers (struct sg_registry: frugal), and beside these, if anybody, counters without
 * a condition and the recorder that the plain paths serve: entry path and return path, without C code in between. Such handlers
 * call nothing, and change no registers but rax, rcx, rdx, rsi, rdi and the flags of arithmetic: the controller has looked at
 * their instructions (src/shadowgraph/ops/handler_code.py). So only what these paths themselves use is saved, and what they
 * need behind a handler is still in r8 to r11, even if it was left where it faulted. The thread's state, which few of them need, is
 * found anew.
 *
 * What a thread says of itself meanwhile is `inside` alone: as long as it does so, the user's slot and its code are nobody
 * else's (using.h, handling.h). Whatever is out of the ordinary goes on to the general paths.
 *
 * To what paths.S draws, these add r9 at -80, r10 at -88, from the slot or, at the return, from rsp; and at the entry r8 at -72.
 */
#ifndef SHADOWGRAPH_FRUGAL_H
#define SHADOWGRAPH_FRUGAL_H

/*
 * The frame on the C stack while handlers run. First the call that they are told, if one of them looks at it (struct
 * sg_registry: told_at_entry, told_at_exit).
 */
#define REST CALL_SIZE                    /* the users whose turn is still to come, a bit each */
#define ENTRY_ARGUMENTS (CALL_SIZE + 8)   /* six of them */
#define DURATION (CALL_SIZE + 8)          /* at the return, for the recorder: no handler can have changed it */
#define ENTRY_SIZE (CALL_SIZE + 152)      /* keeps the stack aligned, as does the other one */
#define RETURN_SIZE (CALL_SIZE + 112)
#define KEPT -96                          /* lies above the frame, and below all that is kept */

/*
 * Says that the thread whose shared state r9 is is in the handler of the user with number rcx, and where: sg_inside_say. What is
 * kept lies at a multiple of 8, so the byte that says who is one of its own, for the users whose turn comes later.
 */
    .macro INSIDE_FRUGAL
    lea rax, [rsp + KEPT]
    shl rax, INSIDE_SHIFT
    lea rax, [rax + rcx + 1]
    mov [r9 + SHARED_INSIDE], rax
    .endm

    .macro INSIDE_NEXT
    lea eax, [rcx + 1]
    mov [r9 + SHARED_INSIDE], al
    .endm

    .macro INSIDE_WHOSE register             /* the user's number, + 1 */
    movzx \register, byte ptr [r9 + SHARED_INSIDE]
    .endm

/* After that, whether this user is there, and no younger than the call (struct sg_registry: since); rdi is the registry. */
    .macro UNLESS_THERE epoch, gone
    mov rdx, [rdi + 8 * rcx + REGISTRY_SINCE]
    cmp rdx, \epoch
    ja \gone
    .endm

/* Where to go on if a handler faults: as if it had returned (sg_guard_decide). For all that this end runs, of a frame of so many bytes. */
    .macro NOTE_WAY_OUT thread, size
    lea rax, [rsp - \size - 8 + WAY_OUT_FRUGAL] /* where the call puts its return address */
    mov [\thread + THREAD_WAY_OUT], rax
    .endm

    .macro THREAD_AGAIN register             /* of which it is known that there is one: see THREAD */
#ifdef SG_THREAD_BY_GS
    rdgsbase \register
#else
    mov \register, [rip + sg_thread@GOTTPOFF]
    mov \register, fs:[\register]
#endif
    .endm

    .macro USER                              /* that with number rcx, into rsi */
    imul ecx, ecx, USER_SIZE
    lea rsi, [rdi + rcx + REGISTRY_USERS]
    .endm

/* The user whose number, + 1, `inside` is misses the call: as sg_users_missed. */
    .macro MISSED_HERE
    THREAD_AGAIN rax
    mov eax, [rax + THREAD_INDEX]
    shl eax, USERS_SHIFT
    INSIDE_WHOSE edx
    lea eax, [rax + rdx - 1]
    shl rax, LOSSES_SHIFT
    add rax, [rip + sg_losses]
    inc qword ptr [rax + LOSSES_MISSED]
    .endm

    .macro TELL_OF_THREAD
    mov eax, [r9 + SHARED_TID]
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
