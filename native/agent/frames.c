/*
 * The general half of entry and return: new threads, block ends, tail calls, captured values, conditions, and frames that are
 * not the newest when they return. What is usual among the calls that plain paths do not serve is served by quick.c before.
 */
#include "frames.h"
#include "using.h"

#define TAIL_CHAIN 1000 /* longer chains of tail calls end their newest call where it leaves (SG_KIND_TAIL) */

static int is_site(uint64_t address)
{
    return address - (uint64_t)sg_sites < (uint64_t)SG_STRIDE * SG_FRAMES;
}

void sg_tail_unlink(struct sg_frame *frame)
{
    struct sg_frame *link = sg_owner_of_slot(frame);
    while (sg_tail_of(link) && sg_tail_of(link) != frame && sg_tail_of(link)->original == 0)
        link = sg_tail_of(link);
    if (link->target == (uint64_t)frame)
        link->target = frame->target;
}

/* The recorders of a call. What has been entered by the plain path is that of slot 0. */
static uint64_t recorders_of(const struct sg_frame *frame)
{
    return frame->open->function & SG_OPEN_USERS ? frame->open->users & sg_registry->recorders : 1;
}

static int has_condition(uint32_t slot)
{
    return sg_registry->conditional >> slot & 1;
}

static void record_for(struct sg_thread *thread, const struct sg_frame *frame, uint32_t slot, uint64_t duration, uint32_t kind)
{
    uint64_t function = frame->open->function;
    uint32_t ring = sg_ring_of_slot(slot);
    const uint64_t *values = function & SG_OPEN_VALUES ? sg_values_captured(frame, ring) : 0;
    struct sg_record what = {frame->open->start, duration, function & ~SG_OPEN_MARKS, kind};
    sg_record_values(thread, ring, &what, values ? values + 1 : 0, values ? (uint32_t)*values : 0);
}

/* Writes the records of a call that ends otherwise than by its return, with what was captured of it. */
void sg_record_call(struct sg_thread *thread, const struct sg_frame *frame, uint64_t now, uint32_t kind)
{
    for (uint64_t rest = recorders_of(frame); rest; rest &= rest - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(rest);
        if (kind == SG_KIND_UNWOUND && has_condition(slot) && !sg_user_exit_holds(thread, (struct sg_frame *)frame, slot, now, 0))
            continue;
        record_for(thread, frame, slot, sg_duration_of(frame, now), kind);
    }
}

/* Captures what recorders want of a call; whether anything was. */
static int capture(const struct sg_frame *frame, const struct sg_user_call *call, uint64_t recorders)
{
    int any = 0;
    for (; recorders; recorders &= recorders - 1)
        any |= sg_values_at_entry(frame, sg_ring_of_slot((uint32_t)__builtin_ctzll(recorders)), call->slot, call->registers);
    return any;
}

/*
 * Writes a frame and lets the users do their part of the entry. Returns whether anybody wants the exit; if not, the frame may
 * be given back.
 */
static int fill(struct sg_thread *thread, struct sg_frame *frame, uint64_t original, uint64_t target, struct sg_user_call *call)
{
    struct sg_function *function = (struct sg_function *)call->function;
    uint64_t users = call->users, marks = 0;
    frame->original = original;
    frame->target = target;
    frame->function = function;
    frame->slot = (uint64_t)call->slot;
    if (users & sg_registry->at_entry)
        users = sg_users_at_entry(thread, frame, call);
    if (users != sg_plain_recorder() || ((sg_registry->conditional | sg_registry->limited) & 1)) {
        frame->open->users = users;
        frame->open->epoch = call->epoch;
        marks = SG_OPEN_SLOW | SG_OPEN_USERS;
    }
    sg_open_begin(frame, users);
    if ((function->flags & SG_FLAG_VALUES) && capture(frame, call, users & sg_registry->recorders))
        marks |= SG_OPEN_SLOW | SG_OPEN_VALUES;
    frame->open->function = function->id | marks; /* from here on controllers see the call as open */
    return users != 0;
}

/* A call ends by a tail call: its users have no exit. */
static void end_by_tail(struct sg_thread *thread, struct sg_frame *frame, uint64_t now)
{
    if (frame->open->function & SG_OPEN_USERS)
        sg_users_unwound(thread, frame);
    if (sg_registry->with_instances)
        sg_users_over(thread, frame);
    sg_record_call(thread, frame, now, SG_KIND_TAIL);
}

static uint64_t chain_length(const struct sg_frame *owner, const struct sg_frame *newest)
{
    /* The tick base may borrow from the depth: only the difference of the 16 bits says anything. */
    return ((newest->bias >> SG_START_BITS) - (owner->bias >> SG_START_BITS)) & 0xffff;
}

/* How many calls of a recorder a new call is nested in, counted up to a limit. */
static uint64_t nested_in(const struct sg_thread *thread, uint32_t slot, uint64_t limit)
{
    uint64_t found = 0;
    const struct sg_frame *frame = thread->top;
    while (frame && found < limit) {
        int sentinel = sg_is_sentinel(frame);
        if (!sentinel && sg_in_flight(frame->slot) && (frame->open->function & ~SG_OPEN_MARKS))
            found += recorders_of(frame) >> slot & 1;
        frame = sentinel ? (const struct sg_frame *)frame->target : frame - 1;
    }
    return found;
}

/* Those of a call's users for whom it is not too deep. */
static uint64_t within_depth(struct sg_thread *thread, uint64_t users)
{
    for (uint64_t rest = users & sg_registry->limited; rest; rest &= rest - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(rest), limit = sg_rings[sg_ring_of_slot(slot)].depth_limit;
        if (limit && nested_in(thread, slot, limit) >= limit) {
            sg_user_filtered(thread, slot);
            users &= ~(1ull << slot);
        }
    }
    return users;
}

/*
 * A frame for a call, if anybody may want its exit and there is one. Who has only the entry is served without.
 */
static struct sg_frame *take_for(struct sg_thread *thread, struct sg_user_call *call)
{
    struct sg_frame *frame = 0;
    uint64_t lost = call->users & sg_registry->at_exit;
    if (lost)
        frame = sg_take(thread, (uint64_t)call->slot, lost);
    if (!frame && (call->users & ~lost)) {
        call->users &= ~lost;
        sg_users_at_entry(thread, 0, call);
    }
    return frame;
}

static void enter_tail(struct sg_thread *thread, struct sg_user_call *call)
{
    uint64_t slot = (uint64_t)call->slot;
    struct sg_frame *owner = sg_frames + (*call->slot - (uint64_t)sg_sites) / SG_STRIDE;
    struct sg_frame *newest = sg_tail_of(owner) ? sg_tail_of(owner) : owner;
    int from_executable = owner->slot == slot && (newest->function->flags & SG_FLAG_EXECUTABLE);
    call->users = sg_users_of(call->function, from_executable, &call->epoch);
    if (owner->slot != slot) {
        sg_users_missed(thread, call->users); /* not a frame's own site: somebody has copied a return address */
        return;
    }
    call->users = within_depth(thread, sg_users_count(thread, call->function, call->users));
    if (!call->users)
        return;
    if (newest != owner && chain_length(owner, newest) >= TAIL_CHAIN) {
        end_by_tail(thread, newest, sg_ticks());
        fill(thread, newest, 0, newest->target, call);
        return;
    }
    struct sg_frame *frame = take_for(thread, call);
    if (!frame)
        return;
    if (!fill(thread, frame, 0, (uint64_t)newest, call)) {
        frame->open->function = 0;
        sg_retire(thread, frame);
        return;
    }
    owner->open->function = (owner->open->function & ~(SG_OPEN_RECORDERS | SG_OPEN_FRUGAL)) | SG_OPEN_SLOW; /* its return ends more than itself */
    owner->target = (uint64_t)frame;
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
    for (struct sg_frame *frame = sg_tail_of(owner), *next; frame && frame != owner; frame = next) {
        next = (struct sg_frame *)frame->target;
        end_by_tail(thread, frame, now);
        frame->open->function = 0;
        sg_retire(thread, frame);
    }
    end_by_tail(thread, owner, now);
    owner->open->function = 0;
    *slot = owner->original;
    sg_retire(thread, owner);
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

/* A call of a thread that has no state: there is no room for one, or it runs in a child of vfork(), on its parent's storage. */
static void missed_by_nobody(void)
{
    __atomic_fetch_add(&sg_arena->missed, 1, __ATOMIC_RELAXED);
    if ((uint32_t)sg_kernel0(KERNEL_getpid) != sg_threads_process())
        __atomic_fetch_add(&sg_arena->missed_in_vfork, 1, __ATOMIC_RELAXED);
}

/* The entry of any call. Returns the frame whose site to jump to, or 0: on to the body. */
struct sg_frame *sg_enter_any(uint64_t *slot, struct sg_function *function, struct sg_entry_registers *registers)
{
    uint64_t original = *slot, address = (uint64_t)slot;
    int tail = is_site(original);
    if (function->flags & (SG_FLAG_EXEC | SG_FLAG_LOADED | SG_FLAG_CLONE | SG_FLAG_EXIT | SG_FLAG_SIGACTION))
        sg_event_hook(function, address, registers);
    if (function->flags & SG_FLAG_TRUE_RETURN && tail) {
        struct sg_thread *own = sg_thread_here();
        if (own)
            give_back_slot(own, slot);
    }
    if (function->flags & SG_FLAG_TRUE_RETURN)
        return 0;
    struct sg_user_call call = {.slot = slot, .function = function, .registers = registers};
    if (!tail)
        call.users = sg_users_of(function, original - sg_caller_low < sg_caller_size, &call.epoch);
    if (!tail && !call.users)
        return 0;
    struct sg_thread *thread = sg_thread_here();
    if (!thread) {
        missed_by_nobody();
        return 0;
    }
    sg_reap(thread, address, tail);
    if (tail) {
        enter_tail(thread, &call);
        return 0;
    }
    call.users = within_depth(thread, sg_users_count(thread, function, call.users));
    struct sg_frame *frame = call.users ? take_for(thread, &call) : 0;
    if (!frame || fill(thread, frame, original, function->body, &call))
        return frame;
    frame->open->function = 0;
    sg_retire(thread, frame);
    return 0;
}

static uint64_t shortest_of(uint32_t slot)
{
    return slot ? sg_rings[sg_ring_of_slot(slot)].minimal_ticks : sg_registry->limited & 1 ? sg_rings[0].minimal_ticks : sg_minimal_ticks;
}

static void finish_for(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, uint64_t now, const struct sg_exit_registers *registers)
{
    uint64_t duration = sg_duration_of(frame, now);
    if (has_condition(slot) && !sg_user_exit_holds(thread, frame, slot, now, registers))
        return;
    if (duration < shortest_of(slot)) {
        sg_user_filtered(thread, slot);
        return;
    }
    if (frame->open->function & SG_OPEN_VALUES)
        sg_values_at_return(frame, sg_ring_of_slot(slot), registers);
    record_for(thread, frame, slot, duration, SG_KIND_RETURNED);
}

/* The records of a call that returns, or the counts of what it was cut for. */
void sg_finish_recorded(struct sg_thread *thread, struct sg_frame *frame, uint64_t now, const struct sg_exit_registers *registers)
{
    for (uint64_t rest = recorders_of(frame); rest; rest &= rest - 1)
        finish_for(thread, frame, (uint32_t)__builtin_ctzll(rest), now, registers);
}

/* Ends one call that returns. */
static void finish(struct sg_thread *thread, struct sg_frame *frame, uint64_t now, const struct sg_exit_registers *registers)
{
    uint64_t open = frame->open->function;
    if (!(open & ~SG_OPEN_MARKS))
        return;
    if (open & SG_OPEN_USERS)
        sg_users_at_return(thread, frame, now, registers);
    sg_finish_recorded(thread, frame, now, registers);
    frame->open->function = 0;
}

/* Ends the functions that were tail-called on the way to this return, newest first. */
static void end_tails(struct sg_thread *thread, struct sg_frame *frame, uint64_t now, const struct sg_exit_registers *registers)
{
    struct sg_frame *next;
    for (struct sg_frame *tail = sg_tail_of(frame); tail && tail != frame; tail = next) {
        next = (struct sg_frame *)tail->target;
        if (thread)
            finish(thread, tail, now, registers);
        sg_retire(thread, tail);
    }
}

/* The return of any call. `recorded`: the record is written, only the frame is to be given back. */
void sg_exit_any(struct sg_frame *frame, uint64_t *slot, uint64_t recorded, struct sg_exit_registers *registers)
{
    uint64_t now = sg_ticks();
    struct sg_thread *thread = sg_thread_here();
    if (thread && sg_blocks[sg_block_of(frame)].owner == thread)
        sg_clear_above(thread, frame, (uint64_t)slot);
    end_tails(thread, frame, now, registers);
    if (!recorded && thread)
        finish(thread, frame, now, registers);
    else if (!recorded && frame->open->function)
        __atomic_fetch_add(&sg_arena->dropped, 1, __ATOMIC_RELAXED);
    *slot = frame->original; /* before the frame is anybody else's: unwinders read the slot from here on */
    sg_retire(thread, frame);
}
