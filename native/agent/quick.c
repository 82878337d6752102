/*
 * The usual case of what the plain paths do not serve: users that are on a function beside the recorder, or instead of it, in
 * a call that comes and goes like most. What is out of the ordinary goes on to the general halves of entry and return
 * (frames.c), and so do users that are not simple (sg_registry.simple): those with a condition, or that look at vector registers.
 */
#include "handling.h"
#include "using.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define INLINE static inline __attribute__((always_inline))

/* Functions that are hooked for more than their users, or of whose calls values are kept. */
#define ASIDE                                                                                                               \
    (SG_FLAG_EXEC | SG_FLAG_LOADED | SG_FLAG_CLONE | SG_FLAG_EXIT | SG_FLAG_SIGACTION | SG_FLAG_TRUE_RETURN | SG_FLAG_VALUES)

static inline int is_site(uint64_t address)
{
    return address - (uint64_t)sg_sites < (uint64_t)SG_STRIDE * SG_FRAMES;
}

/* Whether a word is that of this thread, and has a state of its own: what the plain paths look at, no more (paths.S). */
INLINE int is_ready(const struct sg_thread *thread)
{
#ifdef SG_THREAD_BY_GS
    return sg_is_own(thread);
#else
    return (uint64_t)thread > (uint64_t)SG_THREAD_SHARED && thread->top; /* a forked child finds 0 */
#endif
}

static inline struct sg_frame *newest(const struct sg_thread *thread)
{
    return __atomic_load_n(&thread->top, __ATOMIC_ACQUIRE);
}

/* What a user keeps of a call, at its entry; whether there is room for it. */
static inline int keep(struct sg_handling *handling, struct sg_frame *frame, uint32_t slot, uint64_t size)
{
    handling->call.data = size ? sg_area_take(frame, slot, size) : 0;
    handling->call.data_size = size;
    return !size || handling->call.data;
}

/* The entry of one user with handlers; whether it wants the exit. */
static inline int enter_one(struct sg_thread *thread, struct sg_handling *handling, struct sg_frame *frame, uint32_t slot)
{
    const struct sg_user *user = &sg_registry->users[slot];
    if (!LIKELY(keep(handling, frame, slot, user->data_size))) {
        sg_users_missed(thread, 1ull << slot);
        return 0;
    }
    return !user->entry || sg_handling_run(thread, handling, slot, user->entry, 0);
}

/* Runs the handlers at the entry, in the order of registration; returns the users that want the exit. */
INLINE uint64_t enter_simple(struct sg_thread *thread, struct sg_frame *frame, const struct sg_function *function, uint64_t users,
                                    uint64_t *slot, uint64_t epoch, const struct sg_entry_registers *registers)
{
    const struct sg_registry *registry = sg_registry;
    struct sg_handling handling;
    struct sg_use use;
    uint64_t timed = registry->told_time & users, wanted = 0, there = sg_use_begin(thread, users, (uint64_t)slot, &use);
    sg_handling_begin(&handling);
    if (LIKELY(there && sg_handling_announce(thread, &handling, (uint32_t)__builtin_ctzll(there), (uint64_t)slot))) {
        sg_handling_tell_entry(thread, &handling, function, registers, slot, *slot);
        if (timed)
            sg_handling_tell_time(&handling);
        for (; there; there &= there - 1) {
            uint32_t user = (uint32_t)__builtin_ctzll(there);
            if (LIKELY(registry->epochs[user] <= epoch) && enter_one(thread, &handling, frame, user))
                wanted |= there & -there;
        }
    }
    if (!LIKELY(!there))
        sg_users_missed(thread, there); /* this thread is in a handler already */
    sg_handling_end(thread, &handling);
    sg_use_end(thread, &use);
    return wanted;
}

/*
 * Called by the entry path for all that is not plain. Returns the frame whose site to jump to, or 0: on to the body.
 */
SG_HIDDEN struct sg_frame *sg_enter_slow(uint64_t *slot, struct sg_function *function, struct sg_entry_registers *registers)
{
    const struct sg_registry *registry = sg_registry;
    struct sg_thread *thread = sg_thread_word();
    uint64_t original = *slot, epoch;
    if (!LIKELY(!(function->flags & ASIDE) && !is_site(original) && is_ready(thread)))
        return sg_enter_any(slot, function, registers);
    struct sg_frame *top = newest(thread), *frame = 0;
    uint64_t users = sg_users_of(function, original - sg_caller_low < sg_caller_size, &epoch), simple = registry->simple;
    uint64_t asked = users & registry->at_entry, wanted = users & registry->at_exit;
    if (!LIKELY((uint64_t)slot < top->slot && !(users & ~simple) && !registry->has_order && !registry->with_instances))
        return sg_enter_any(slot, function, registers);
    if (wanted) {
        if (!LIKELY(top[1].slot == (uint64_t)SG_SLOT_FREE && sg_swap_own(&thread->top, (uint64_t)top, (uint64_t)(top + 1))))
            return sg_enter_any(slot, function, registers);
        frame = top + 1;
        frame->original = original;
        frame->target = function->body;
        frame->function = function;
        __atomic_store_n(&frame->slot, (uint64_t)slot, __ATOMIC_RELEASE);
    }
    if (users & registry->counters)
        sg_users_count(thread, function, users);
    if (asked) {
        uint64_t keeping = asked & registry->with_data;
        if (keeping && !(frame && sg_area_begin(frame, epoch))) {
            sg_users_missed(thread, keeping);
            wanted &= ~keeping;
            asked &= ~keeping;
        }
        wanted &= ~asked | enter_simple(thread, frame, function, asked, slot, epoch, registers);
    }
    if (!frame)
        return 0;
    struct sg_open *open = frame->open;
    if (LIKELY(wanted)) {
        open->users = wanted;
        open->epoch = epoch;
        open->start = wanted & registry->timed ? sg_ticks() + frame->bias : open->start + 1; /* see sg_open_begin */
        /* From here on controllers see the call as open. */
        __atomic_store_n(&open->function, function->id | SG_OPEN_SLOW | SG_OPEN_USERS, __ATOMIC_RELEASE);
        return frame;
    }
    open->function = 0;
    sg_retire(thread, frame);
    return 0;
}

/* Adds the duration of a call to the cells of a user. */
static inline void measure(struct sg_thread *thread, const struct sg_user *user, const struct sg_frame *frame, uint64_t duration)
{
    int histogram = user->kind == SG_USER_HISTOGRAM;
    uint64_t first = sg_first_cell(user, frame->function);
    uint64_t *cells = first ? sg_cell(thread, first) : 0;
    if (LIKELY(cells))
        sg_add_to_cells(cells, duration, 1, histogram);
    else
        sg_users_missed(thread, 1ull << (user - sg_registry->users));
}

/* Runs the exit sides of simple users, the last one first. */
INLINE void leave_simple(struct sg_thread *thread, struct sg_frame *frame, uint64_t users, uint64_t now,
                                const struct sg_exit_registers *registers)
{
    const struct sg_registry *registry = sg_registry;
    uint64_t duration = sg_duration_of(frame, now), epoch = frame->open->epoch;
    struct sg_handling handling;
    struct sg_use use;
    sg_handling_begin(&handling);
    for (uint64_t there = sg_use_begin(thread, users, frame->slot, &use); there;) {
        uint32_t slot = 63 - (uint32_t)__builtin_clzll(there);
        const struct sg_user *user = &registry->users[slot];
        there &= ~(1ull << slot);
        if (!LIKELY(registry->epochs[slot] <= epoch))
            continue;
        if (user->kind != SG_USER_HANDLER) {
            measure(thread, user, frame, duration);
            continue;
        }
        if (!handling.running) {
            if (!LIKELY(sg_handling_announce(thread, &handling, slot, frame->slot))) {
                sg_users_missed(thread, 1ull << slot);
                continue;
            }
            sg_handling_tell_exit(thread, &handling, frame, now, registers, frame->original);
        }
        handling.call.data = user->data_size ? sg_area_part(frame, slot) : 0;
        handling.call.data_size = user->data_size;
        sg_handling_run(thread, &handling, slot, user->exit, 0);
    }
    sg_handling_end(thread, &handling);
    sg_use_end(thread, &use);
}

/* The record of a call; what is unusual about it is sg_finish_recorded's. */
static inline void record(struct sg_thread *thread, struct sg_frame *frame, uint64_t now, const struct sg_exit_registers *registers)
{
    uint64_t duration = sg_duration_of(frame, now), start = frame->open->start, at = SG_PLACE_ONE;
    uint8_t is_full = 1;
    if (LIKELY(duration >= sg_minimal_ticks && !(duration >> SG_DURATION_BITS)))
        __asm__ volatile("xadd %0, %1\n\tsets %2" : "+r"(at), "+m"(thread->rings[0].position), "=q"(is_full) : : "memory", "cc");
    if (!LIKELY(!is_full)) {
        sg_finish_recorded(thread, frame, now, registers);
        return;
    }
    uint64_t *place = (uint64_t *)(at << 16 >> 16); /* the address without the count */
    place[0] = start;
    place[1] = duration << SG_FUNCTION_BITS | frame->function->id;
}

/*
 * Called by the return path for all that is not plain. `recorded`: the record is written, only the frame is to be given
 * back. Leaves the original address in the slot.
 */
SG_HIDDEN void sg_exit_slow(struct sg_frame *frame, uint64_t *slot, uint64_t recorded, struct sg_exit_registers *registers)
{
    const uint64_t marks = SG_OPEN_SLOW | SG_OPEN_USERS;
    const struct sg_registry *registry = sg_registry;
    struct sg_thread *thread = sg_thread_word();
    struct sg_open *open = frame->open;
    uint64_t users = open->users, simple = registry->simple, recorder = users & 1 ? sg_plain_recorder() : 0;
    if (!LIKELY((open->function & SG_OPEN_MARKS & ~(SG_OPEN_MEASURED | SG_OPEN_FRUGAL)) == marks && !(users & ~simple) && !recorded && is_ready(thread) && newest(thread) == frame &&
                !sg_tail_of(frame) && !registry->has_order && !registry->with_instances)) {
        sg_exit_any(frame, slot, recorded, registers);
        return;
    }
    uint64_t now = users & registry->timed_at_exit ? sg_ticks() : 0;
    if (users & ~recorder)
        leave_simple(thread, frame, users & ~recorder, now, registers);
    if (users & recorder)
        record(thread, frame, now, registers);
    open->function = 0;
    *slot = frame->original; /* before the frame is anybody else's: unwinders read the slot from here on */
    __atomic_store_n(&frame->slot, (uint64_t)SG_SLOT_FREE, __ATOMIC_RELEASE);
    if (!LIKELY(sg_swap_own(&thread->top, (uint64_t)frame, (uint64_t)(frame - 1))))
        sg_retire(thread, frame);
}
