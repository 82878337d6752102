/* What taking, reaping and the slow paths know of frames together. */
#ifndef SHADOWGRAPH_FRAMES_H
#define SHADOWGRAPH_FRAMES_H

#include "agent.h"

static inline uint64_t sg_duration_of(const struct sg_frame *frame, uint64_t now)
{
    return now + frame->bias - frame->open->start;
}

/* How many traced calls a call is nested in. */
static inline uint64_t sg_depth_of(const struct sg_frame *frame)
{
    return (frame->bias + sg_arena->tick_base) >> SG_START_BITS;
}

/* What lies on top, and the count of steps to go with it. */
static inline struct sg_frame *sg_newest(const struct sg_thread *thread, uint64_t *steps)
{
    *steps = __atomic_load_n(&thread->steps, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&thread->top, __ATOMIC_ACQUIRE);
}

/*
 * Tail calls. A function reached by a tail call finds a site in its slot. It gets a frame of its own, with no original
 * address, and runs without a site: the one return of the frame that owns the slot ends all of them (R19). They are linked
 * from that frame, newest first, by their targets; wherever they lie, since a coroutine's tail call comes on top of others.
 */
static inline struct sg_frame *sg_tail_of(const struct sg_frame *frame)
{
    uint64_t offset = frame->target - (uint64_t)sg_frames;
    return offset < sizeof sg_frames ? (struct sg_frame *)frame->target : 0;
}

/* The frame that owns the slot of a function that was tail-called. */
static inline struct sg_frame *sg_owner_of_slot(struct sg_frame *frame)
{
    struct sg_frame *first = frame;
    /* A coroutine's first function may really have been called with return address 0: it has no frame to point to. */
    while (!frame->original && sg_tail_of(frame)) {
        frame = sg_tail_of(frame);
        if (frame == first)
            break;
    }
    return frame;
}

/* taking.c */
SG_HIDDEN void sg_pop(struct sg_thread *thread, struct sg_frame *frame, uint64_t mark);
SG_HIDDEN int sg_step_back(struct sg_thread *thread, struct sg_frame *sentinel, uint64_t steps);
SG_HIDDEN struct sg_frame *sg_take(struct sg_thread *thread, uint64_t slot, uint64_t users);
SG_HIDDEN void sg_retire(struct sg_thread *thread, struct sg_frame *frame);

/* reaping.c */
SG_HIDDEN void sg_reap(struct sg_thread *thread, uint64_t slot, int tail);
SG_HIDDEN void sg_clear_above(struct sg_thread *thread, struct sg_frame *frame, uint64_t slot);

/* The start of a call, if one of its users looks at the clock; else just another one than before (thread->alive_since). */
static inline void sg_open_begin(struct sg_frame *frame, uint64_t users)
{
    if (users & (sg_registry->timed | sg_registry->recorders))
        frame->open->start = sg_ticks() + frame->bias;
    else
        frame->open->start++;
}

/* frames.c */
SG_HIDDEN struct sg_frame *sg_enter_any(uint64_t *slot, struct sg_function *function, struct sg_entry_registers *registers);
SG_HIDDEN void sg_exit_any(struct sg_frame *frame, uint64_t *slot, uint64_t recorded, struct sg_exit_registers *registers);
SG_HIDDEN void sg_finish_recorded(struct sg_thread *thread, struct sg_frame *frame, uint64_t now, const struct sg_exit_registers *registers);
SG_HIDDEN void sg_tail_unlink(struct sg_frame *frame);
SG_HIDDEN void sg_record_call(struct sg_thread *thread, const struct sg_frame *frame, uint64_t now, uint32_t kind);

#endif
