/*
 * Running the handlers of one end of a call, one after the other.
 *
 * A thread in a handler says so in shared memory, then looks once more whether the user is still there: whoever unregisters
 * takes the user off first, makes all threads pass a barrier, and waits for those that are inside. That barrier is why none is
 * needed here, where each call would pay for it (src/shadowgraph/agent/barrier.py). The calls that a handler makes are not
 * given to handlers; one that it has left by longjmp is noticed by the stack pointer.
 */
#ifndef SHADOWGRAPH_HANDLING_H
#define SHADOWGRAPH_HANDLING_H

#include "frames.h"

#define SG_GIVEN /* here they are written */
#include "shadowgraph/ops.h"

#define SAME(member, offset) _Static_assert(offsetof(struct sg_call, member) == (offset), "known to frugal.h")
SAME(function, CALL_FUNCTION);
SAME(arguments, CALL_ARGUMENTS);
SAME(stack, CALL_STACK);
SAME(result, CALL_RESULT);
SAME(result_high, CALL_RESULT + 8);
SAME(return_address, CALL_RETURN_ADDRESS);
SAME(data, CALL_DATA);
SAME(data_size, CALL_DATA_SIZE);
SAME(time, CALL_TIME);
SAME(duration, CALL_DURATION);
SAME(thread, CALL_THREAD);
SAME(process, CALL_PROCESS);
_Static_assert(sizeof(struct sg_call) == CALL_SIZE, "known to frugal.h");
#undef SAME

/* What the handlers of one end are told, made for the first of them. What a user keeps differs, the rest does not. */
struct sg_handling {
    uint32_t running, told; /* the thread says that it is inside; `call` is filled */
    uint64_t seen;          /* `vectors` are */
    struct sg_call call;
    uint64_t vectors[8][2];
};

/* handlers.c, running.S */
SG_HIDDEN int sg_handler_enter(struct sg_thread *thread, struct sg_handling *handling, struct sg_frame *frame, uint32_t slot,
                               const struct sg_user_call *its);
SG_HIDDEN void sg_handler_leave(struct sg_thread *thread, struct sg_handling *handling, struct sg_frame *frame, uint32_t slot,
                                uint64_t now, const struct sg_exit_registers *registers);
SG_HIDDEN int sg_handler_emit(struct sg_call *call, const void *record, uint64_t size);
SG_HIDDEN int sg_handler_run(struct sg_call *call, uint64_t address, uint64_t *way_out);
SG_HIDDEN int sg_handler_run_with_vectors(struct sg_call *call, uint64_t address, uint64_t *way_out);

/* No member is cleared but these: most are told by the first handler, if there is one. */
static inline void sg_handling_begin(struct sg_handling *handling)
{
    handling->running = handling->told = 0;
    handling->seen = 0;
}

static inline void sg_handling_end(struct sg_thread *thread, const struct sg_handling *handling)
{
    if (handling->running)
        __atomic_store_n(&thread->shared->inside, 0, __ATOMIC_RELEASE);
}

/* What `inside` tells: of whose handler, and where on the stack. One word, for it must be true whenever a signal comes. */
static inline uint32_t sg_inside_whose(uint64_t inside)
{
    return (uint32_t)((inside & SG_INSIDE_SLOT) - 1) % SG_USERS;
}

static inline uint64_t sg_inside_where(uint64_t inside)
{
    return inside >> SG_INSIDE_SHIFT;
}

static inline void sg_inside_say(struct sg_thread *thread, const struct sg_handling *where, uint32_t slot)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&thread->shared->inside, (uint64_t)where << SG_INSIDE_SHIFT | (slot + 1), __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* `from`: the slot of a call. One within a handler lies below where that runs; if it does not, the handler has been left. */
static inline int sg_is_inside(struct sg_thread *thread, uint64_t from)
{
    uint64_t inside = thread->shared->inside, where = sg_inside_where(inside);
    if (__builtin_expect(!inside, 1))
        return 0;
    return !(from > where && sg_on_own_stack(thread, from) == sg_on_own_stack(thread, where));
}

/* Says that this thread is in handlers from now on, the first being that of `slot`; 0 if it is in one already. */
static inline int sg_handling_announce(struct sg_thread *thread, struct sg_handling *handling, uint32_t slot, uint64_t from)
{
    if (sg_is_inside(thread, from))
        return 0;
    sg_inside_say(thread, handling, slot);
    handling->running = 1;
    return 1;
}

/* Runs one of them unless its user has gone, or it is not in this process; whether the exit is wanted, if this was the entry. */
static inline int sg_handling_run(struct sg_thread *thread, struct sg_handling *handling, uint32_t slot, uint64_t address, int with_vectors)
{
    sg_inside_say(thread, handling, slot);
    if (!__builtin_expect((sg_registry->live & ~sg_registry->faulted) >> slot & 1, 1))
        return 1;
    if (!__builtin_expect(sg_registry->users[slot].code_number == sg_handlers_here.numbers[slot], 1)) {
        sg_users_missed(thread, 1ull << slot);
        return 0;
    }
    handling->call.user = slot;
    return with_vectors ? sg_handler_run_with_vectors(&handling->call, address, thread->way_out)
                        : sg_handler_run(&handling->call, address, thread->way_out);
}

/* All members are named below: else the compiler clears them all first. What a user keeps is told apart. */
static inline void sg_handling_tell_entry(const struct sg_thread *thread, struct sg_handling *handling, const struct sg_function *function,
                                          const struct sg_entry_registers *registers, const uint64_t *slot, uint64_t return_address)
{
    handling->told = 1;
    handling->call = (struct sg_call){
        .function = function->id,
        .arguments = &registers->rdi,
        .stack = slot + 1,
        .vectors = (const uint64_t(*)[2])handling->vectors,
        .result = 0,
        .result_high = 0,
        .return_address = return_address,
        .data = 0,
        .data_size = 0,
        .time = 0,
        .duration = 0,
        .thread = thread->tid,
        .process = thread->shared->pid,
        .emit = sg_handler_emit,
        .user = 0,
        .instance = 0,
        .instance_size = 0,
    };
}

/* `now` is 0 if nobody looks at the clock. */
static inline void sg_handling_tell_exit(const struct sg_thread *thread, struct sg_handling *handling, const struct sg_frame *frame,
                                         uint64_t now, const struct sg_exit_registers *registers, uint64_t return_address)
{
    uint64_t duration = sg_duration_of(frame, now);
    handling->told = 1;
    handling->call = (struct sg_call){
        .function = frame->function->id,
        .arguments = 0,
        .stack = 0,
        .vectors = (const uint64_t(*)[2])registers->xmm,
        .result = registers->rax,
        .result_high = registers->rdx,
        .return_address = return_address,
        .data = 0,
        .data_size = 0,
        .time = now - duration,
        .duration = duration,
        .thread = thread->tid,
        .process = thread->shared->pid,
        .emit = sg_handler_emit,
        .user = 0,
        .instance = 0,
        .instance_size = 0,
    };
}

/* When the call came, for the handlers that are told: by one look at the clock for all, since it costs more than they do. */
static inline void sg_handling_tell_time(struct sg_handling *handling)
{
    if (!handling->call.time)
        handling->call.time = sg_ticks();
}

#endif
