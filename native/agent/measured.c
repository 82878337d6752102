/*
 * The return of a call that one histogram, or one user of totals, measures and nobody else wants. The return path calls this
 * without saving registers: it keeps all of them itself, and as few as it needs, for it calls nothing. (Nothing here may be
 * compiled to a string instruction either: the direction flag is the program's.)
 */
#include "frames.h"
#include "measuring.h"

#ifdef __SANITIZE_THREAD__ /* whose code calls more */
#define KEEPING_REGISTERS
#else
#define KEEPING_REGISTERS __attribute__((no_caller_saved_registers))
#endif

/* The cells of a user for a function, if this thread has them already. */
static inline uint64_t *known_cells(const struct sg_thread *thread, const struct sg_user *user, const struct sg_function *function)
{
    uint64_t first = sg_first_cell(user, function);
    uint64_t *page = first && thread->pages ? thread->pages[first / SG_PAGE_CELLS] : 0;
    return page ? page + first % SG_PAGE_CELLS : 0;
}

/*
 * Adds the duration of a call that returns `now`. 0 if this is not for here to do, and has not been done. The thread says that
 * it is doing something for the user as in using.h.
 */
KEEPING_REGISTERS SG_HIDDEN int sg_leave_measured(struct sg_frame *frame, struct sg_thread *thread, uint64_t now)
{
    const struct sg_registry *registry = sg_registry;
    const struct sg_open *open = frame->open;
    uint64_t users = open->users;
    if (thread->top != frame || sg_tail_of(frame)) /* a forked child, which returns from a call of its parent's, finds 0 */
        return 0;
    struct sg_shared_thread *shared = thread->shared;
    uint64_t stack = shared->busy_stack;
    if (!(users & registry->measures) || (users & (users - 1)) || shared->busy)
        return 0;
    shared->busy_stack = (uint64_t)&stack;
    __asm__ volatile("orq %1, %0" : "+m"(shared->busy) : "r"(users) : "memory", "cc");
    uint32_t slot = (uint32_t)__builtin_ctzll(users);
    const struct sg_user *user = &registry->users[slot];
    uint64_t *cells = 0;
    int is_there = (registry->live & ~registry->faulted) >> slot & 1 && registry->epochs[slot] <= open->epoch;
    int is_measure = user->kind == SG_USER_HISTOGRAM || user->kind == SG_USER_TOTALS;
    if (is_there && is_measure && (cells = known_cells(thread, user, frame->function)))
        sg_add_to_cells(cells, sg_duration_of(frame, now), 1, user->kind == SG_USER_HISTOGRAM);
    shared->busy_stack = stack;
    SG_BEFORE(&shared->busy);
    __asm__ volatile("andq %1, %0" : "+m"(shared->busy) : "r"(~users) : "memory", "cc");
    return cells != 0;
}
