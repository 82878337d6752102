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

#define LOOK_BELOW 64
#define TAIL_CHAIN 1000 /* longer chains of tail calls end their newest call where it leaves (SG_KIND_TAIL) */

static int is_site(uint64_t address)
{
    return address - (uint64_t)sg_sites < (uint64_t)SG_STRIDE * SG_FRAMES;
}

static uint64_t duration_of(const struct sg_frame *frame, uint64_t now)
{
    return now + frame->bias - frame->open->start;
}

/* Gives the newest frame back, unless somebody else has since its slot was seen to hold `mark`. */
static void pop(struct sg_thread *thread, struct sg_frame *frame, uint64_t mark)
{
    if (!sg_swap_own(&frame->slot, mark, (uint64_t)SG_SLOT_FREE))
        return;
    if (!sg_swap_own(&thread->top, (uint64_t)frame, (uint64_t)(frame - 1)))
        __atomic_store_n(&frame->slot, SG_SLOT_RETURNED, __ATOMIC_RELEASE); /* another has come on top of it */
}

/* From frames that are all free to those below. `steps` was read before the sentinel was found on top. */
static int step_back(struct sg_thread *thread, struct sg_frame *sentinel, uint64_t steps)
{
    struct sg_frame *below = (struct sg_frame *)sentinel->target;
    if (!below)
        return 0;
    if (sg_step(thread, sentinel, steps, below))
        sg_holes_give_back(thread, sentinel);
    return 1;
}

/* What lies on top, and the count of steps to go with it. */
static struct sg_frame *newest(const struct sg_thread *thread, uint64_t *steps)
{
    *steps = __atomic_load_n(&thread->steps, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&thread->top, __ATOMIC_ACQUIRE);
}

/*
 * Tail calls. A function reached by a tail call finds a site in its slot. It gets a frame of its own, with no original
 * address, and runs without a site: the one return of the frame that owns the slot ends all of them (R19). They are linked
 * from that frame, newest first, by their targets; wherever they lie, since a coroutine's tail call comes on top of others.
 */
static struct sg_frame *tail_of(const struct sg_frame *frame)
{
    uint64_t offset = frame->target - (uint64_t)sg_frames;
    return offset < sizeof sg_frames ? (struct sg_frame *)frame->target : 0;
}

/* The frame that owns the slot of a function that was tail-called. */
static struct sg_frame *owner_of_slot(struct sg_frame *frame)
{
    struct sg_frame *first = frame;
    /* A coroutine's first function may really have been called with return address 0: it has no frame to point to. */
    while (!frame->original && tail_of(frame)) {
        frame = tail_of(frame);
        if (frame == first)
            break;
    }
    return frame;
}

static void unlink_tail(struct sg_frame *frame)
{
    struct sg_frame *link = owner_of_slot(frame);
    while (tail_of(link) && tail_of(link) != frame && tail_of(link)->original == 0)
        link = tail_of(link);
    if (link->target == (uint64_t)frame)
        link->target = frame->target;
}

/* Writes the record of a call, with what was captured of it. */
static void record(struct sg_thread *thread, const struct sg_frame *frame, uint64_t now, uint32_t kind)
{
    const uint64_t *values = frame->open->function & SG_OPEN_VALUES ? (const uint64_t *)frame->values : 0;
    uint64_t function = frame->open->function & ~SG_OPEN_MARKS;
    sg_record_values(thread, frame->open->start, duration_of(frame, now), function, kind, values ? values + 1 : 0,
                     values ? (uint32_t)*values : 0);
}

/* Whoever claims the frame records the call; of several who find it dead, one does. */
static int record_unwound(struct sg_thread *thread, struct sg_frame *frame)
{
    uint64_t slot = frame->slot;
    if (!sg_in_flight(slot) || !sg_swap_own(&frame->slot, slot, SG_SLOT_CLAIMED))
        return 0;
    if (frame->open->function & ~SG_OPEN_MARKS)
        record(thread, frame, sg_ticks(), SG_KIND_UNWOUND);
    frame->open->function = 0;
    return 1;
}

/* Records a call that was left without returning and claims its frame, with those that share its slot; 0 if somebody
   else has. */
int sg_frame_unwound(struct sg_thread *thread, struct sg_frame *frame)
{
    if (!frame->original)
        unlink_tail(frame);
    else
        for (struct sg_frame *tail = tail_of(frame), *next; tail && tail != frame; tail = next) {
            next = tail_of(tail);
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
    const struct sg_frame *owner = owner_of_slot(frame);
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
static void reap(struct sg_thread *thread, uint64_t slot, int tail)
{
    for (;;) {
        uint64_t steps;
        struct sg_frame *top = newest(thread, &steps);
        uint64_t held = top->slot;
        if (slot < held || (tail && slot == held) || held == SG_SLOT_CLAIMED)
            return;
        if (sg_is_sentinel(top)) {
            if (!step_back(thread, top, steps))
                return;
        } else if (sg_in_flight(held)) {
            if (known_alive(thread, top))
                return;
            if (alive_elsewhere(thread, top, slot)) {
                reap_below(thread, top, slot);
                return;
            }
            if (sg_frame_unwound(thread, top))
                pop(thread, top, SG_SLOT_CLAIMED);
        } else {
            pop(thread, top, held); /* returned before the frames above it did */
        }
    }
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

/* Takes the frame above the newest, for a call whose slot is `slot`; 0 if there is none, counted. */
static struct sg_frame *take(struct sg_thread *thread, uint64_t slot)
{
    for (;;) {
        uint64_t steps;
        struct sg_frame *top = newest(thread, &steps);
        uint64_t mark = top[1].slot;
        if (mark == (uint64_t)SG_SLOT_FREE) {
            if (sg_swap_own(&thread->top, (uint64_t)top, (uint64_t)(top + 1)))
                return top + 1;
        } else if (mark == SG_SLOT_CUT) {
            thread->shared->filtered++;
            return 0;
        } else if (!step_up(thread, top, steps, slot)) {
            thread->shared->missed++;
            return 0;
        }
    }
}

static void fill(struct sg_frame *frame, uint64_t original, uint64_t target, uint64_t *at, struct sg_function *function,
                 const struct sg_entry_registers *registers)
{
    uint64_t slot = (uint64_t)at;
    frame->original = original;
    frame->target = target;
    frame->function = function;
    frame->slot = slot;
    frame->open->start = sg_ticks() + frame->bias;
    frame->open->function = function->id;
    if (function->flags & SG_FLAG_VALUES) {
        sg_values_at_entry(frame, at, registers);
        frame->open->function |= SG_OPEN_SLOW | SG_OPEN_VALUES;
    }
}

static uint64_t chain_length(const struct sg_frame *owner, const struct sg_frame *newest)
{
    /* The tick base may borrow from the depth: only the difference of the 16 bits says anything. */
    return ((newest->bias >> SG_START_BITS) - (owner->bias >> SG_START_BITS)) & 0xffff;
}

static void enter_tail(struct sg_thread *thread, uint64_t *at, struct sg_function *function,
                       const struct sg_entry_registers *registers)
{
    uint64_t slot = (uint64_t)at;
    struct sg_frame *owner = sg_frames + (*at - (uint64_t)sg_sites) / SG_STRIDE;
    struct sg_frame *newest = tail_of(owner) ? tail_of(owner) : owner;
    if (owner->slot != slot) {
        thread->shared->missed++; /* not a frame's own site: somebody has copied a return address */
        return;
    }
    if ((function->flags & SG_FLAG_CALLER) && !(newest->function->flags & SG_FLAG_EXECUTABLE))
        return;
    if (newest != owner && chain_length(owner, newest) >= TAIL_CHAIN) {
        record(thread, newest, sg_ticks(), SG_KIND_TAIL);
        fill(newest, 0, newest->target, at, function, registers);
        return;
    }
    struct sg_frame *frame = take(thread, slot);
    if (!frame)
        return;
    fill(frame, 0, (uint64_t)newest, at, function, registers);
    owner->open->function |= SG_OPEN_SLOW; /* its return ends more than itself */
    owner->target = (uint64_t)frame;
}

/* Gives back the frame of a call that is over, now if it is the newest, else when those above it have gone. */
static void retire(struct sg_thread *thread, struct sg_frame *frame)
{
    int own = thread && sg_blocks[sg_block_of(frame)].owner == thread;
    uint64_t steps;
    struct sg_frame *top = own ? newest(thread, &steps) : 0;
    if (own && sg_is_sentinel(top) && top->target == (uint64_t)frame)
        step_back(thread, top, steps);
    frame->slot = (uint64_t)SG_SLOT_FREE;
    if (own && sg_swap_own(&thread->top, (uint64_t)frame, (uint64_t)(frame - 1)))
        return;
    if (own)
        thread->holes++;
    __atomic_store_n(&frame->slot, SG_SLOT_RETURNED, __ATOMIC_RELEASE);
}

/*
 * A function that must find its true return address has been tail-called: the calls that share the slot end here, and the
 * slot gets back what was in it. (dlsym finds its caller by it, setjmp keeps it.) What a hardware shadow stack has of the site
 * goes in the entry path, since here it is below what has called this.
 */
static void give_back_slot(struct sg_thread *thread, uint64_t *slot)
{
    struct sg_frame *owner = sg_frames + (*slot - (uint64_t)sg_sites) / SG_STRIDE;
    uint64_t now = sg_ticks();
    if (owner->slot != (uint64_t)slot)
        return;
    for (struct sg_frame *frame = tail_of(owner), *next; frame && frame != owner; frame = next) {
        next = (struct sg_frame *)frame->target;
        record(thread, frame, now, SG_KIND_TAIL);
        frame->open->function = 0;
        retire(thread, frame);
    }
    record(thread, owner, now, SG_KIND_TAIL);
    owner->open->function = 0;
    *slot = owner->original;
    retire(thread, owner);
}

/* Where the true return address of a slot is, for runtimes that walk their stacks (V8 asks its embedder). */
uint64_t sg_resolve_return_address(uint64_t slot)
{
    uint64_t held = *(const uint64_t *)slot;
    if (!is_site(held))
        return slot;
    struct sg_frame *frame = sg_frames + (held - (uint64_t)sg_sites) / SG_STRIDE;
    return (uint64_t)&frame->original;
}

/*
 * Called by the entry path for all that is not plain. Returns the frame whose site to jump to, or 0: on to the body.
 */
SG_HIDDEN struct sg_frame *sg_enter_slow(uint64_t *slot, struct sg_function *function, struct sg_entry_registers *registers)
{
    uint64_t original = *slot, address = (uint64_t)slot;
    int tail = is_site(original);
    if (function->flags & (SG_FLAG_EXEC | SG_FLAG_LOADED | SG_FLAG_CLONE | SG_FLAG_EXIT))
        sg_event_hook(function, address, registers);
    if (function->flags & SG_FLAG_TRUE_RETURN && tail) {
        struct sg_thread *own = sg_thread_here();
        if (own)
            give_back_slot(own, slot);
    }
    if (function->flags & (SG_FLAG_SILENT | SG_FLAG_TRUE_RETURN))
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
        enter_tail(thread, slot, function, registers);
        return 0;
    }
    struct sg_frame *frame = take(thread, address);
    if (frame)
        fill(frame, original, function->body, slot, function, registers);
    return frame;
}

/* Ends one call that returns: the record, or the count of what it was cut for. */
static void finish(struct sg_thread *thread, struct sg_frame *frame, uint64_t now, const struct sg_exit_registers *registers)
{
    if (!(frame->open->function & ~SG_OPEN_MARKS))
        return;
    if (duration_of(frame, now) < sg_minimal_ticks) {
        thread->shared->filtered++;
    } else {
        if (frame->open->function & SG_OPEN_VALUES)
            sg_values_at_return(frame, registers);
        record(thread, frame, now, SG_KIND_RETURNED);
    }
    frame->open->function = 0;
}

/* Ends what lies above a frame that returns and can only be dead. */
static void clear_above(struct sg_thread *thread, struct sg_frame *frame, uint64_t slot)
{
    for (;;) {
        uint64_t steps;
        struct sg_frame *top = newest(thread, &steps);
        uint64_t held = top->slot;
        /* A free one on top is that of an entry that a signal handler has interrupted: it may go on, or never. */
        if (top == frame || held == slot || held == (uint64_t)SG_SLOT_FREE || held == SG_SLOT_CLAIMED)
            return;
        if (sg_is_sentinel(top)) {
            if (!step_back(thread, top, steps))
                return;
        } else if (sg_in_flight(held)) {
            if (alive_elsewhere(thread, top, slot))
                return;
            if (sg_frame_unwound(thread, top))
                pop(thread, top, SG_SLOT_CLAIMED);
        } else {
            pop(thread, top, held);
        }
    }
}

/* Ends the functions that were tail-called on the way to this return, newest first. */
static void end_tails(struct sg_thread *thread, struct sg_frame *frame, uint64_t now, const struct sg_exit_registers *registers)
{
    struct sg_frame *next;
    for (struct sg_frame *tail = tail_of(frame); tail && tail != frame; tail = next) {
        next = (struct sg_frame *)tail->target;
        if (thread)
            finish(thread, tail, now, registers);
        retire(thread, tail);
    }
}

/*
 * Called by the return path for all that is not plain. `recorded`: the record is written, only the frame is to be given
 * back. Leaves the original address in the slot.
 */
SG_HIDDEN void sg_exit_slow(struct sg_frame *frame, uint64_t *slot, uint64_t recorded, struct sg_exit_registers *registers)
{
    uint64_t now = sg_ticks();
    struct sg_thread *thread = sg_thread_here();
    if (thread && sg_blocks[sg_block_of(frame)].owner == thread)
        clear_above(thread, frame, (uint64_t)slot);
    end_tails(thread, frame, now, registers);
    if (!recorded && thread)
        finish(thread, frame, now, registers);
    else if (!recorded && frame->open->function)
        __atomic_fetch_add(&sg_arena->dropped, 1, __ATOMIC_RELAXED);
    *slot = frame->original; /* before the frame is anybody else's: unwinders read the slot from here on */
    retire(thread, frame);
}
