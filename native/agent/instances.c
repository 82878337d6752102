/*
 * Instances: what a handler keeps of a call when that is more than an area of its frame holds (users.h, R14). A call takes one
 * by exchanging the word that says whose it is, and whoever ends the call gives it back: the exit, whoever notices that the call
 * was left without one, or a controller, for a process that has ended. That word is the only truth, so nothing is lost or
 * given away twice wherever a thread is interrupted, or killed.
 */
#include "frames.h"

#define USUAL_LOOK 16
#define REST_TICKS (1 << 21) /* about a millisecond: so long nobody looks for what was not there */

/* What the pool says of a user's instances, taken apart. */
struct pool {
    struct sg_instances *head;
    uint64_t *holders;
    char *first;
    uint32_t count, size;
};

static uint64_t rounded_up(uint64_t size, uint64_t step)
{
    return (size + step - 1) / step * step;
}

static struct pool pool_of(const struct sg_user *user)
{
    struct sg_instances *head = (struct sg_instances *)(sg_pool + user->instances_at);
    uint64_t *holders = (uint64_t *)(head + 1);
    return (struct pool){
        .head = head,
        .holders = holders,
        .first = (char *)holders + rounded_up(8ull * user->instances, SG_INSTANCE_STEP),
        .count = user->instances,
        .size = (uint32_t)rounded_up(user->instance_size, SG_INSTANCE_STEP),
    };
}

/* Where in the call's area its instance is noted: its number, counted from 1; behind the user's data. */
static uint64_t *number_of(struct sg_frame *frame, uint32_t slot)
{
    return (uint64_t *)((char *)sg_user_data(frame, slot, 0) + rounded_up(sg_registry->users[slot].data_size, 8));
}

/* How much of the call's area a user needs for what it keeps there. */
uint64_t sg_instance_space(const struct sg_user *user)
{
    return user->instances ? rounded_up(user->data_size, 8) + 8 : user->data_size;
}

static uint64_t holder_of(const struct sg_frame *frame)
{
    return (uint64_t)sg_threads_process() << 32 | (uint64_t)(frame - sg_frames + 1);
}

/* Takes one that is free among the first `most` from `at` on. */
static uint64_t claim(const struct pool *pool, uint64_t own, uint64_t at, uint32_t most)
{
    for (uint32_t i = 0; i < most && i < pool->count; i++, at++) {
        uint64_t *holder = &pool->holders[at % pool->count], nobody = 0;
        if (!__atomic_load_n(holder, __ATOMIC_RELAXED) &&
            __atomic_compare_exchange_n(holder, &nobody, own, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            return at % pool->count + 1;
    }
    return 0;
}

/*
 * Whether a call of this thread, on one of its frames, that has an instance shows to be over, seen from the call on `frame`. A
 * frame that is nobody's call has none to keep; if its end is just being noticed, that comes to the same.
 */
static int is_over(struct sg_thread *thread, struct sg_frame *frame, struct sg_frame *holding)
{
    if (!sg_in_flight(holding->slot))
        return 1;
    if (holding->slot == frame->slot && !frame->original)
        return 0; /* by whom it was tail-called */
    return sg_frame_dead(thread, holding, frame->slot);
}

/*
 * Calls that were left without returning give back what they have when that is noticed, which may be late: below a frame that
 * somebody was about to take when a signal handler left by siglongjmp, it is when the thread ends. Returns whether there were
 * any.
 */
static int take_back(struct sg_thread *thread, struct sg_frame *frame, const struct pool *pool)
{
    int found = 0;
    for (uint32_t i = 0; i < pool->count; i++) {
        uint64_t holder = __atomic_load_n(&pool->holders[i], __ATOMIC_RELAXED);
        struct sg_frame *holding = sg_frames + (uint32_t)holder - 1;
        if (holder >> 32 != sg_threads_process() || holding == frame || sg_blocks[sg_block_of(holding)].owner != thread ||
            !is_over(thread, frame, holding))
            continue;
        if (!sg_in_flight(holding->slot)) {
            sg_users_over(thread, holding);
        } else if (sg_frame_unwound(thread, holding)) {
            thread->holes++;
            __atomic_store_n(&holding->slot, SG_SLOT_RETURNED, __ATOMIC_RELEASE);
        }
        found = 1;
    }
    return found;
}

/*
 * Looks everywhere. Says first that none is free: whoever gives one back meanwhile takes that back, and is seen, or sees it.
 * What dead threads have is theirs until somebody notices that they are dead.
 */
static uint64_t search(struct sg_thread *thread, struct sg_frame *frame, const struct pool *pool, uint64_t own, uint64_t at)
{
    __atomic_store_n(&pool->head->full, sg_ticks() | 1, __ATOMIC_SEQ_CST);
    uint64_t found = claim(pool, own, at, pool->count);
    if (!found && (take_back(thread, frame, pool) | sg_threads_sweep(thread, 0xffffffff)))
        found = claim(pool, own, at, pool->count);
    if (found)
        __atomic_store_n(&pool->head->full, 0, __ATOMIC_RELAXED);
    return found;
}

/* Takes an instance for a call; 0 if none is free. A frame finds the one again that it had before, if it can. */
void *sg_instance_take(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot)
{
    struct pool pool = pool_of(&sg_registry->users[slot]);
    uint64_t own = holder_of(frame), at = (uint64_t)(frame - sg_frames), *number = number_of(frame, slot);
    uint64_t full = __atomic_load_n(&pool.head->full, __ATOMIC_RELAXED);
    if (full && sg_ticks() - full < REST_TICKS)
        return 0;
    *number = 0;
    sg_area_hold(frame, slot, 1);
    uint64_t found = claim(&pool, own, at, USUAL_LOOK);
    if (!found)
        found = search(thread, frame, &pool, own, at);
    if (!found) {
        sg_area_hold(frame, slot, 0);
        return 0;
    }
    *(volatile uint64_t *)number = found;
    return pool.first + (found - 1) * pool.size;
}

/* The instance that a call has. */
void *sg_instance_of(struct sg_frame *frame, uint32_t slot)
{
    struct pool pool = pool_of(&sg_registry->users[slot]);
    return pool.first + (*number_of(frame, slot) - 1) * pool.size;
}

/* A call needs its instance no more. If it was left while it took it, it may have one that it has not noted yet. */
void sg_instance_give_back(struct sg_frame *frame, uint32_t slot)
{
    struct pool pool = pool_of(&sg_registry->users[slot]);
    uint64_t own = holder_of(frame), number = *number_of(frame, slot);
    for (uint64_t i = number ? number - 1 : 0; i < (number ? number : pool.count); i++) {
        uint64_t holder = own;
        if (__atomic_compare_exchange_n(&pool.holders[i], &holder, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            break;
    }
    sg_area_hold(frame, slot, 0);
    if (__atomic_load_n(&pool.head->full, __ATOMIC_RELAXED))
        __atomic_store_n(&pool.head->full, 0, __ATOMIC_RELAXED);
}
