/*
 * Taking frames and giving them back. A thread's frames form one stack, newest at thread->top. A frame that is over while
 * newer ones lie above it is marked SG_SLOT_RETURNED and goes when they have gone.
 */
#include "frames.h"

/* Gives the newest frame back, unless somebody else has since its slot was seen to hold `mark`. */
void sg_pop(struct sg_thread *thread, struct sg_frame *frame, uint64_t mark)
{
    if (!sg_swap_own(&frame->slot, mark, (uint64_t)SG_SLOT_FREE))
        return;
    if (!sg_swap_own(&thread->top, (uint64_t)frame, (uint64_t)(frame - 1)))
        __atomic_store_n(&frame->slot, SG_SLOT_RETURNED, __ATOMIC_RELEASE); /* another has come on top of it */
}

/* From frames that are all free to those below. `steps` was read before the sentinel was found on top. */
int sg_step_back(struct sg_thread *thread, struct sg_frame *sentinel, uint64_t steps)
{
    struct sg_frame *below = (struct sg_frame *)sentinel->target;
    if (!below)
        return 0;
    if (sg_step(thread, sentinel, steps, below))
        sg_holes_give_back(thread, sentinel);
    return 1;
}

/* A block for use above `last`, if it lies idle. */
static struct sg_frame *use_again(uint32_t block, struct sg_frame *last)
{
    struct sg_frame *frames = block ? sg_block_frames(block - 1) : 0;
    if (!frames || !sg_swap_own(&frames->slot, SG_SLOT_IDLE, (uint64_t)SG_SLOT_START))
        return 0;
    if (frames->target != (uint64_t)last)
        sg_frames_prepare(frames, SG_BLOCK_FRAMES - 1, last);
    else if (sg_in_flight(last->slot))
        frames->slot = last->slot;
    return frames;
}

/* The block that was used above the one of `last` before. */
static struct sg_frame *block_above(struct sg_frame *last)
{
    return use_again(sg_blocks[sg_block_of(last)].above, last);
}

/* One that lies idle elsewhere, or one more. */
static struct sg_frame *new_block(struct sg_thread *thread, struct sg_frame *last)
{
    for (uint32_t own = thread->first_block; own; own = sg_blocks[own - 1].next) {
        struct sg_frame *frames = use_again(own, last);
        if (frames) {
            sg_blocks[sg_block_of(last)].above = own;
            return frames;
        }
    }
    uint64_t signals = sg_lock();
    uint32_t block = sg_block_take(thread, last);
    sg_unlock(signals);
    if (!block)
        return 0;
    sg_blocks[sg_block_of(last)].above = block;
    return sg_block_frames(block - 1);
}

/*
 * Makes room above a frame behind which there is none: the block used there before, holes if there are many, a new block,
 * or whatever holes there are.
 */
static int step_up(struct sg_thread *thread, struct sg_frame *last, uint64_t steps, uint64_t slot)
{
    struct sg_frame *frames = block_above(last);
    uint32_t vain = thread->exhausted;
    if (!frames && vain && (vain & (vain - 1))) {
        thread->exhausted++; /* do not search everything at each call, but at the 1st, 2nd, 4th, 8th ... of them */
        return 0;
    }
    if (!frames && thread->holes >= SG_BLOCK_FRAMES)
        frames = sg_holes_use(thread, last, slot, 0);
    if (!frames)
        frames = new_block(thread, last);
    if (!frames)
        frames = sg_holes_use(thread, last, slot, 1);
    if (!frames)
        sg_threads_sweep(thread, 0xffffffff); /* what dead threads held is there for the next call */
    thread->exhausted = frames ? 0 : vain + 1;
    if (frames && !sg_step(thread, last, steps, frames))
        sg_holes_give_back(thread, frames); /* a signal handler has taken frames meanwhile: look again */
    return frames != 0;
}

/* Takes the frame above the newest, for a call of these users whose slot is `slot`; 0 if there is none, counted. */
struct sg_frame *sg_take(struct sg_thread *thread, uint64_t slot, uint64_t users)
{
    for (;;) {
        uint64_t steps;
        struct sg_frame *top = sg_newest(thread, &steps);
        uint64_t mark = top[1].slot;
        if (mark == (uint64_t)SG_SLOT_FREE) {
            if (sg_swap_own(&thread->top, (uint64_t)top, (uint64_t)(top + 1)))
                return top + 1;
        } else if (mark == SG_SLOT_CUT && sg_frames_are_cut()) {
            thread->shared->filtered++;
            return 0;
        } else if (mark == SG_SLOT_CUT) { /* for a limit that the slow path sees to by now */
            sg_swap_own(&top[1].slot, SG_SLOT_CUT, sg_frame_uncut(top + 1));
        } else if (!step_up(thread, top, steps, slot)) {
            sg_users_missed(thread, users);
            return 0;
        }
    }
}

/* Gives back the frame of a call that is over, now if it is the newest, else when those above it have gone. */
void sg_retire(struct sg_thread *thread, struct sg_frame *frame)
{
    int own = thread && sg_blocks[sg_block_of(frame)].owner == thread;
    uint64_t steps;
    struct sg_frame *top = own ? sg_newest(thread, &steps) : 0;
    if (own && sg_is_sentinel(top) && top->target == (uint64_t)frame)
        sg_step_back(thread, top, steps);
    frame->slot = (uint64_t)SG_SLOT_FREE;
    if (own && sg_swap_own(&thread->top, (uint64_t)frame, (uint64_t)(frame - 1)))
        return;
    if (own)
        thread->holes++;
    __atomic_store_n(&frame->slot, SG_SLOT_RETURNED, __ATOMIC_RELEASE);
}
