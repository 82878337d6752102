/*
 * The slow half of entry and return: new threads, block ends, tail calls, and frames that were left by exceptions,
 * longjmp, coroutine switches or migration to another thread.
 *
 * A thread's frames form one stack, newest at thread->top. A frame that is over while newer ones lie above it is marked
 * SG_SLOT_RETURNED and goes when they have gone. A frame is dead for sure (design: section 4) if a new call's slot is the
 * very same address, if it lies below the current slot on the thread's own stack, or if its slot does not hold its site
 * any more. Everything else may still be returned to, and is kept.
 */
#include "agent.h"

#define TAIL_CHAIN 1000 /* longer chains of tail calls end their newest call where it leaves (SG_KIND_TAIL) */

static int is_site(uint64_t address)
{
    return address - (uint64_t)sg_sites < (uint64_t)SG_STRIDE * SG_FRAMES;
}

static int is_sentinel(const struct sg_frame *frame)
{
    return (frame - sg_frames) % SG_BLOCK_FRAMES == 0;
}

static uint64_t duration_of(const struct sg_frame *frame, uint64_t now)
{
    return now + frame->bias - frame->open->start;
}

/* Gives the newest frame back; its slot must already be out of flight. */
static void pop(struct sg_thread *thread, struct sg_frame *frame)
{
    frame->slot = (uint64_t)SG_SLOT_FREE;
    sg_swap_own(&thread->top, (uint64_t)frame, (uint64_t)(frame - 1));
}

/* From the empty newest block back to the one below it. */
static int step_back(struct sg_thread *thread, struct sg_frame *sentinel)
{
    uint32_t previous = sg_blocks[sg_block_of(sentinel)].previous;
    if (!previous)
        return 0;
    struct sg_frame *last = sg_block_frames(previous - 1) + SG_BLOCK_FRAMES - 2;
    sg_swap_own(&thread->top, (uint64_t)sentinel, (uint64_t)last);
    return 1;
}

/* Records a call that was left without returning and takes its frame out of flight. */
void sg_frame_unwound(struct sg_thread *thread, struct sg_frame *frame)
{
    uint64_t slot = frame->slot;
    if (!sg_in_flight(slot) || !sg_swap_own(&frame->slot, slot, SG_SLOT_CLAIMED))
        return;
    uint64_t function = frame->open->function & ~SG_OPEN_SLOW;
    sg_record(thread, frame->open->start, duration_of(frame, sg_ticks()), function, SG_KIND_UNWOUND);
    frame->open->function = 0;
}

/* Whether a frame in flight, with the current slot at or above its own, can never be returned to. */
int sg_frame_dead(struct sg_thread *thread, struct sg_frame *frame, uint64_t slot)
{
    uint64_t held, own = frame->slot;
    if (own == slot)
        return 1;
    if (own < slot && sg_on_own_stack(thread, own) && sg_on_own_stack(thread, slot))
        return 1;
    while (!frame->original && !is_sentinel(frame - 1))
        frame--; /* a tail-called function lives as long as the frame whose slot it shares */
    return !sg_peek(own, &held) || held != sg_site_return(frame);
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

/* Clears what is dead from the top of the frames, for a call whose slot is `slot`. */
static void reap(struct sg_thread *thread, uint64_t slot, int tail)
{
    for (;;) {
        struct sg_frame *top = thread->top;
        if (slot < top->slot || (tail && slot == top->slot))
            return;
        if (is_sentinel(top)) {
            if (!step_back(thread, top))
                return;
        } else if (sg_in_flight(top->slot)) {
            if (alive_elsewhere(thread, top, slot))
                return;
            sg_frame_unwound(thread, top);
            pop(thread, top);
        } else {
            pop(thread, top); /* returned before the frames above it did */
        }
    }
}

/* Makes room above the last frame of a block. */
static int next_block(struct sg_thread *thread, struct sg_frame *last)
{
    static uint32_t exhausted;
    uint32_t block = sg_block_of(last), next = sg_blocks[block].next;
    if (!next) {
        if (exhausted && ++exhausted % 1024)
            return 0; /* do not search the whole pool at each call */
        uint64_t signals = sg_lock();
        next = sg_blocks[block].next;
        if (!next)
            next = sg_block_take(thread, block + 1);
        sg_unlock(signals);
        exhausted = !next;
        if (!next) {
            sg_threads_sweep(thread, 0xffffffff); /* what dead threads held is there for the next call */
            return 0;
        }
    }
    struct sg_frame *sentinel = sg_block_frames(next - 1);
    sentinel->slot = sg_in_flight(last->slot) ? last->slot : (uint64_t)SG_SLOT_START;
    sg_swap_own(&thread->top, (uint64_t)last, (uint64_t)sentinel);
    return 1;
}

/* Takes the frame above the newest; 0 if there is none, counted. */
static struct sg_frame *take(struct sg_thread *thread)
{
    for (;;) {
        struct sg_frame *top = thread->top;
        uint64_t mark = top[1].slot;
        if (mark == (uint64_t)SG_SLOT_FREE) {
            if (sg_swap_own(&thread->top, (uint64_t)top, (uint64_t)(top + 1)))
                return top + 1;
        } else if (mark == SG_SLOT_CUT) {
            thread->shared->filtered++;
            return 0;
        } else if (mark != SG_SLOT_END || !next_block(thread, top)) {
            thread->shared->missed++;
            return 0;
        }
    }
}

static void fill(struct sg_frame *frame, uint64_t original, uint64_t target, uint64_t slot, struct sg_function *function)
{
    frame->original = original;
    frame->target = target;
    frame->function = function;
    frame->values = 0;
    frame->slot = slot;
    frame->open->start = sg_ticks() + frame->bias;
    frame->open->function = function->id;
}

/*
 * A function reached by a tail call: the slot holds a site already. It gets a frame of its own above the one whose slot
 * it shares, with no original address, and runs without a site; the one return ends both (R19).
 */
static void enter_tail(struct sg_thread *thread, uint64_t slot, struct sg_function *function)
{
    struct sg_frame *top = thread->top;
    if (top->slot != slot || is_sentinel(top)) {
        thread->shared->missed++; /* the frame is another thread's or lies below a coroutine's */
        return;
    }
    if ((function->flags & SG_FLAG_CALLER) && !(top->function->flags & SG_FLAG_EXECUTABLE))
        return;
    uint64_t chain = top->original ? 1 : top->target + 1;
    struct sg_frame *frame = chain <= TAIL_CHAIN ? take(thread) : 0;
    if (frame) {
        fill(frame, 0, chain, slot, function);
    } else if (chain > TAIL_CHAIN) {
        sg_record(thread, top->open->start, duration_of(top, sg_ticks()), top->open->function & ~SG_OPEN_SLOW, SG_KIND_TAIL);
        fill(top, 0, chain - 1, slot, function);
    }
}

/*
 * Called by the entry path for all that is not plain. Returns the frame whose site to jump to, or 0: on to the body.
 */
SG_HIDDEN struct sg_frame *sg_enter_slow(uint64_t *slot, struct sg_function *function, struct sg_entry_registers *registers)
{
    uint64_t original = *slot, address = (uint64_t)slot;
    int tail = is_site(original);
    if (function->flags & (SG_FLAG_EXEC | SG_FLAG_LOADED | SG_FLAG_CLONE))
        sg_event_hook(function, registers);
    if (function->flags & SG_FLAG_SILENT)
        return 0;
    if ((function->flags & SG_FLAG_CALLER) && !tail && original - sg_caller_low >= sg_caller_size)
        return 0;
    struct sg_thread *thread = sg_thread_here();
    if (!thread) {
        __atomic_fetch_add(&sg_arena->missed, 1, __ATOMIC_RELAXED);
        return 0;
    }
    reap(thread, address, tail);
    if (tail) {
        enter_tail(thread, address, function);
        return 0;
    }
    struct sg_frame *frame = take(thread);
    if (frame)
        fill(frame, original, function->body, address, function);
    return frame;
}

/* Ends one call: the record, or the count of what it was cut for. */
static void finish(struct sg_thread *thread, struct sg_frame *frame, uint64_t now)
{
    uint64_t function = frame->open->function & ~SG_OPEN_SLOW;
    uint64_t duration = duration_of(frame, now);
    if (!function)
        return;
    if (duration < sg_minimal_ticks)
        thread->shared->filtered++;
    else
        sg_record(thread, frame->open->start, duration, function, SG_KIND_RETURNED);
    frame->open->function = 0;
}

/* Ends what lies above a frame that returns: tail-called functions (they return with it) and dead frames. */
static void clear_above(struct sg_thread *thread, struct sg_frame *frame, uint64_t slot, uint64_t now)
{
    while (thread->top != frame) {
        struct sg_frame *top = thread->top;
        if (is_sentinel(top)) {
            if (!step_back(thread, top))
                return;
        } else if (top->slot == slot && !top->original) {
            finish(thread, top, now);
            pop(thread, top);
        } else if (sg_in_flight(top->slot)) {
            if (alive_elsewhere(thread, top, slot))
                return;
            sg_frame_unwound(thread, top);
            pop(thread, top);
        } else if (top->slot == (uint64_t)SG_SLOT_FREE) {
            if (!sg_on_own_stack(thread, slot))
                return;
            thread->shared->missed++; /* an entry that a signal handler interrupted and left by longjmp */
            pop(thread, top);
        } else {
            pop(thread, top);
        }
    }
}

/*
 * Called by the return path for all that is not plain. `recorded`: the record is written, only the frame is to be given
 * back. Leaves the original address in the slot.
 */
SG_HIDDEN void sg_exit_slow(struct sg_frame *frame, uint64_t *slot, uint64_t recorded, struct sg_exit_registers *registers)
{
    uint64_t now = sg_ticks();
    struct sg_block *block = &sg_blocks[sg_block_of(frame)];
    struct sg_thread *thread = sg_thread_here();
    (void)registers;
    if (thread && block->owner == thread)
        clear_above(thread, frame, (uint64_t)slot, now);
    if (!recorded && thread)
        finish(thread, frame, now);
    else if (!recorded && frame->open->function)
        __atomic_fetch_add(&sg_arena->dropped, 1, __ATOMIC_RELAXED);
    frame->slot = (uint64_t)SG_SLOT_FREE;
    *slot = frame->original; /* before the frame is anybody else's: unwinders read the slot from here on */
    if (thread && block->owner == thread && sg_swap_own(&thread->top, (uint64_t)frame, (uint64_t)(frame - 1)))
        return;
    __atomic_store_n(&frame->slot, SG_SLOT_RETURNED, __ATOMIC_RELEASE);
}
