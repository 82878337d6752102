/*
 * Frames of calls that were left without returning: by exceptions, longjmp, coroutine switches, or the end of their thread.
 *
 * A frame is dead for sure (design: section 4) if a new call's slot is the very same address, if it lies below the current
 * slot on the thread's own stack or on the one where it handles signals, or if its slot does not hold its site any more.
 * Everything else may still be returned to, and is kept.
 */
#include "frames.h"

#define LOOK_BELOW 64

/* Whoever claims the frame records the call; of several who find it dead, one does. */
static int record_unwound(struct sg_thread *thread, struct sg_frame *frame)
{
    uint64_t slot = frame->slot;
    if (!sg_in_flight(slot) || !sg_swap_own(&frame->slot, slot, SG_SLOT_CLAIMED))
        return 0;
    if (frame->open->function & SG_OPEN_USERS)
        sg_users_unwound(thread, frame);
    if (sg_registry->with_instances)
        sg_users_over(thread, frame);
    if (frame->open->function & ~SG_OPEN_MARKS)
        sg_record_call(thread, frame, sg_ticks(), SG_KIND_UNWOUND);
    frame->open->function = 0;
    return 1;
}

/* Records a call that was left without returning and claims its frame, with those that share its slot; 0 if somebody
   else has. */
int sg_frame_unwound(struct sg_thread *thread, struct sg_frame *frame)
{
    if (!frame->original)
        sg_tail_unlink(frame);
    else
        for (struct sg_frame *tail = sg_tail_of(frame), *next; tail && tail != frame; tail = next) {
            next = sg_tail_of(tail);
            if (!record_unwound(thread, tail))
                continue;
            thread->holes++;
            __atomic_store_n(&tail->slot, SG_SLOT_RETURNED, __ATOMIC_RELEASE);
        }
    return record_unwound(thread, frame);
}

/* Whether a call whose slot is `slot` shows by its place alone that the one whose slot is `own` can never return. */
static int overwritten(struct sg_thread *thread, uint64_t own, uint64_t slot)
{
    if (own >= slot)
        return own == slot;
    if (sg_on_own_stack(thread, slot))
        return sg_on_own_stack(thread, own);
    return sg_on_signal_stack(slot) && sg_on_signal_stack(own);
}

/*
 * Whether a frame in flight can never be returned to, seen from a call whose slot is `slot`. Where pieces of stacks are
 * copied away and back (greenlet), a slot says nothing of its frames. A slot that still holds the caller's address may be
 * that of an entry interrupted just before its site's call, by a handler that has switched stacks.
 */
int sg_frame_dead(struct sg_thread *thread, struct sg_frame *frame, uint64_t slot)
{
    uint64_t held, own = frame->slot;
    if (sg_settings.stacks_are_copied)
        return 0;
    if (overwritten(thread, own, slot))
        return 1;
    if (sg_on_own_stack(thread, own) && sg_on_own_stack(thread, slot)) {
        held = *(const uint64_t *)own; /* above the current call on the same stack: it can be read */
    } else if (!sg_peek(own, &held)) {
        return 1;
    }
    const struct sg_frame *owner = sg_owner_of_slot(frame);
    return held != sg_site_return(owner) && held != owner->original;
}

static int known_alive(const struct sg_thread *thread, const struct sg_frame *frame)
{
    return thread->alive_elsewhere == frame && thread->alive_since == frame->open->start;
}

static int alive_elsewhere(struct sg_thread *thread, struct sg_frame *frame, uint64_t slot)
{
    if (known_alive(thread, frame))
        return 1;
    if (sg_frame_dead(thread, frame, slot))
        return 0;
    thread->alive_elsewhere = frame;
    thread->alive_since = frame->open->start;
    return 1;
}

/*
 * Ends what is dead below a newest frame that may be alive on another stack: calls of the present stack that the way out
 * of that other one has left behind (siglongjmp from a signal stack). They become holes. Looks at some frames only: it is
 * done each time a thread comes to another stack.
 */
static void reap_below(struct sg_thread *thread, struct sg_frame *frame, uint64_t slot)
{
    for (int looked = 0; looked < LOOK_BELOW; looked++) {
        frame = sg_is_sentinel(frame) ? (struct sg_frame *)frame->target : frame - 1;
        if (!frame)
            return;
        if (!sg_in_flight(frame->slot) || sg_is_sentinel(frame))
            continue;
        if (overwritten(thread, frame->slot, slot)) {
            if (sg_frame_unwound(thread, frame)) {
                thread->holes++;
                __atomic_store_n(&frame->slot, SG_SLOT_RETURNED, __ATOMIC_RELEASE);
            }
        } else if (sg_on_own_stack(thread, frame->slot) && sg_on_own_stack(thread, slot)) {
            return; /* what is below was called earlier still */
        }
    }
}

/* Whether a call lies in the signal stack, and this thread, which is about to end the process, is not in a handler there. */
static int left_in_handler(struct sg_thread *thread, uint64_t own, uint64_t slot)
{
    return !sg_on_own_stack(thread, own) && sg_on_signal_stack(own) && !sg_on_signal_stack(slot) &&
           (uint32_t)sg_kernel0(KERNEL_getpid) == thread->shared->pid;
}

/* The process is about to end in a call whose slot is `slot`: what this thread has left behind is over. */
void sg_frames_end(struct sg_thread *thread, uint64_t slot)
{
    for (uint32_t block = thread->first_block; block; block = sg_blocks[block - 1].next) {
        for (uint32_t i = 1; i < SG_BLOCK_FRAMES - 1; i++) {
            struct sg_frame *frame = sg_block_frames(block - 1) + i;
            if (!sg_in_flight(frame->slot) || sg_is_sentinel(frame))
                continue;
            if (!sg_frame_dead(thread, frame, slot) && !left_in_handler(thread, frame->slot, slot))
                continue;
            if (sg_frame_unwound(thread, frame))
                frame->slot = SG_SLOT_RETURNED;
        }
    }
}

/* Clears what is dead from the top of the frames, for a call whose slot is `slot`. */
void sg_reap(struct sg_thread *thread, uint64_t slot, int tail)
{
    for (;;) {
        uint64_t steps;
        struct sg_frame *top = sg_newest(thread, &steps);
        uint64_t held = top->slot;
        if (slot < held || (tail && slot == held) || held == SG_SLOT_CLAIMED)
            return;
        if (sg_is_sentinel(top)) {
            if (!sg_step_back(thread, top, steps))
                return;
        } else if (sg_in_flight(held)) {
            if (known_alive(thread, top))
                return;
            if (alive_elsewhere(thread, top, slot)) {
                reap_below(thread, top, slot);
                return;
            }
            if (sg_frame_unwound(thread, top))
                sg_pop(thread, top, SG_SLOT_CLAIMED);
        } else {
            sg_pop(thread, top, held); /* returned before the frames above it did */
        }
    }
}

/* Ends what lies above a frame that returns and can only be dead. */
void sg_clear_above(struct sg_thread *thread, struct sg_frame *frame, uint64_t slot)
{
    for (;;) {
        uint64_t steps;
        struct sg_frame *top = sg_newest(thread, &steps);
        uint64_t held = top->slot;
        /* A free one on top is that of an entry that a signal handler has interrupted: it may go on, or never. */
        if (top == frame || held == slot || held == (uint64_t)SG_SLOT_FREE || held == SG_SLOT_CLAIMED)
            return;
        if (sg_is_sentinel(top)) {
            if (!sg_step_back(thread, top, steps))
                return;
        } else if (sg_in_flight(held)) {
            if (alive_elsewhere(thread, top, slot))
                return;
            if (sg_frame_unwound(thread, top))
                sg_pop(thread, top, SG_SLOT_CLAIMED);
        } else {
            sg_pop(thread, top, held);
        }
    }
}
