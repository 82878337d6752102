/*
 * Doing something for users. The thread says so, and then looks whether the users are still those whose call it is. Whoever
 * takes a user off gives its slot, cells and place in the pool to nobody before all threads that say so are done (R11): a
 * thread may stand anywhere in here for as long as the kernel likes. One instruction each sets and clears the bits; what
 * orders the former with the look is the controller's barrier (agent/barrier.py).
 */
#ifndef SHADOWGRAPH_USING_H
#define SHADOWGRAPH_USING_H

#include "measuring.h"

/*
 * Whose call of this function it is, by one epoch of the registry, which has one side: the masks of the other one may be half
 * written by whoever exchanges a filter, but not before the epoch is the next one.
 */
static inline uint64_t sg_users_of(const struct sg_function *function, int from_executable, uint64_t *epoch)
{
    const struct sg_registry *registry = sg_registry;
    uint64_t users, armed, seen;
    uint32_t side;
    do {
        seen = __atomic_load_n(&registry->epoch, __ATOMIC_ACQUIRE);
        side = __atomic_load_n(&registry->side, __ATOMIC_ACQUIRE);
        users = __atomic_load_n(&function->users[side & 1], __ATOMIC_ACQUIRE);
        armed = __atomic_load_n(&registry->armed, __ATOMIC_ACQUIRE);
    } while (__atomic_load_n(&registry->epoch, __ATOMIC_ACQUIRE) != seen);
    *epoch = seen;
    users &= armed & ~registry->faulted;
    return __builtin_expect(!(users & function->callers), 1) || from_executable ? users : users & ~function->callers;
}

/* Counts a call for all counters without a condition at once; returns the other users. */
static inline uint64_t sg_users_count(struct sg_thread *thread, const struct sg_function *function, uint64_t users)
{
    uint64_t counters = users & sg_registry->counters;
    uint64_t *cell = counters ? sg_cell(thread, function->cell) : 0;
    if (cell)
        SG_ADD_TO(cell, 1);
    else if (counters)
        sg_users_missed(thread, counters);
    return users & ~counters;
}

struct sg_use {
    uint64_t bits, stack;
};

/* users.c */
SG_HIDDEN void sg_use_forget_left(struct sg_thread *thread, uint64_t from);

/* For some of the users of a call whose slot is `from`, all at once; returns those that are there. */
static inline uint64_t sg_use_begin(struct sg_thread *thread, uint64_t users, uint64_t from, struct sg_use *use)
{
    struct sg_shared_thread *shared = thread->shared;
    if (__builtin_expect(shared->busy != 0, 0))
        sg_use_forget_left(thread, from);
    use->stack = shared->busy_stack;
    use->bits = users & ~shared->busy; /* a signal handler's call: others stay set for the one that was interrupted */
    if (!shared->busy)
        shared->busy_stack = (uint64_t)use;
    __asm__ volatile("orq %1, %0" : "+m"(shared->busy) : "r"(users) : "memory", "cc");
    return users & sg_registry->live & ~sg_registry->faulted;
}

static inline void sg_use_end(struct sg_thread *thread, const struct sg_use *use)
{
    thread->shared->busy_stack = use->stack;
    SG_BEFORE(&thread->shared->busy);
    __asm__ volatile("andq %1, %0" : "+m"(thread->shared->busy) : "r"(~use->bits) : "memory", "cc");
}

#endif
