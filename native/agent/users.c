/*
 * The users of a call: who they are, what each does at the entry, and what at the exit. The recorder in slot 0, alone on a
 * function, does without this: the plain paths of paths.S serve it.
 */
#include "doubles.h"
#include "handling.h"
#include "measuring.h"
#include "shadowgraph/predicate.h"
#include "using.h"

#define SAVED_SIZE (8 * SG_PREDICATE_SAVED)

/* Nobody yet; numbers of functions and cells begin with 1. */
void sg_users_start(void)
{
    sg_registry->epoch = 1;
    sg_registry->next_function = sg_registry->next_cell = 1;
    sg_registry->recorders = 1;
    sg_registry->loud_at_entry = sg_registry->loud_at_exit = ~0ull;
    for (uint32_t slot = 0; slot < SG_USERS; slot++)
        sg_registry->since[slot] = SG_NOBODY;
}

/* These users do not get this call. */
void sg_users_missed(struct sg_thread *thread, uint64_t users)
{
    uint64_t plain = users & sg_plain_recorder();
    if (plain)
        thread->shared->missed++;
    for (users &= ~plain; users; users &= users - 1)
        sg_losses_of(thread, (uint32_t)__builtin_ctzll(users))->missed++;
}

void sg_user_filtered(struct sg_thread *thread, uint32_t slot)
{
    if (1ull << slot & sg_plain_recorder())
        thread->shared->filtered++;
    else
        sg_losses_of(thread, slot)->filtered++;
}

/* Of a narrow type the function has left anything in the upper bits: what the type says of them. */
static uint64_t narrowed(uint32_t code, uint64_t value)
{
    uint32_t bits = code >> SG_VALUE_BITS_SHIFT & 0xff;
    if (!bits || bits >= 64)
        return value;
    value <<= 64 - bits;
    return code & SG_VALUE_UNSIGNED ? value >> (64 - bits) : (uint64_t)((int64_t)value >> (64 - bits));
}

static void add_value(struct sg_thread *thread, uint32_t slot, const struct sg_function *function, uint64_t value)
{
    const struct sg_user *user = &sg_registry->users[slot];
    int histogram = user->kind == SG_USER_HISTOGRAM;
    int has_sign = user->value != SG_VALUE_DURATION && !(user->value & SG_VALUE_UNSIGNED);
    uint64_t first = sg_first_cell(user, function);
    if (user->value & SG_VALUE_FLOAT) {
        uint64_t wide = (user->value >> SG_VALUE_BITS_SHIFT & 0xff) == 32 ? sg_widen((uint32_t)value) : value;
        if (!first || !sg_add_float(thread, first, wide, histogram))
            sg_losses_of(thread, slot)->missed++;
        return;
    }
    value = narrowed(user->value, value);
    int negative = has_sign && (int64_t)value < 0;
    if (histogram && negative) {
        first += first ? SG_HISTOGRAM_CELLS : 0;
        value = ~value;
    }
    uint64_t *cells = first ? sg_cell(thread, first) : 0;
    if (!cells) {
        sg_losses_of(thread, slot)->missed++;
        return;
    }
    sg_add_to_cells(cells, value, histogram || !negative, histogram);
}

static void add_call(struct sg_thread *thread, uint32_t slot, const struct sg_function *function)
{
    uint64_t first = sg_first_cell(&sg_registry->users[slot], function);
    uint64_t *cell = first ? sg_cell(thread, first) : 0;
    if (cell)
        SG_ADD_TO(cell, 1);
    else
        sg_losses_of(thread, slot)->missed++;
}

/*
 * An argument, in a register or on the stack; 0 if there is none. A function may have fewer arguments than it is asked
 * for, and its stack may end above it: other pages than that of the return address are probed.
 */
static int read_argument(const struct sg_user_call *call, uint32_t code, uint64_t *value)
{
    const struct sg_entry_registers *r = call->registers;
    const uint64_t integers[] = {r->rdi, r->rsi, r->rdx, r->rcx, r->r8, r->r9};
    uint32_t number = (code & SG_VALUE_SOURCE) - SG_VALUE_ARGUMENT;
    if (code & SG_VALUE_FLOAT) {
        uint64_t vectors[8][2];
        sg_see_vectors(vectors, call);
        *value = vectors[number & 7][0];
        return 1;
    }
    if (number < 6) {
        *value = integers[number];
        return 1;
    }
    const uint64_t *place = call->slot + 1 + number - 6;
    if (((uint64_t)place + 7) >> 12 != (uint64_t)call->slot >> 12)
        return sg_peek((uint64_t)place, value);
    *value = *place;
    return 1;
}

/* What a user keeps of a call; what its condition keeps lies before it. `take`: at the entry, where it gets its part. */
void *sg_user_data(struct sg_frame *frame, uint32_t slot, int take)
{
    const struct sg_user *user = &sg_registry->users[slot];
    if (user->exit_predicate)
        return (char *)sg_area_part(frame, slot) + SAVED_SIZE;
    return take ? sg_area_take(frame, slot, sg_instance_space(user)) : sg_area_part(frame, slot);
}

/* The vector registers at the entry, wherever they are by now. */
void sg_see_vectors(uint64_t (*to)[2], const struct sg_user_call *call)
{
    if (!(call->function->flags & SG_FLAG_VECTORS)) {
        sg_read_vectors(to);
        return;
    }
    for (uint32_t i = 0; i < 8; i++) {
        to[i][0] = call->registers->xmm[i].low;
        to[i][1] = call->registers->xmm[i].high;
    }
}

/*
 * Whether the entry part of a user's condition holds. What the exit part needs is kept in the call's area.
 */
static int entry_holds(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, const struct sg_user_call *call)
{
    const struct sg_user *user = &sg_registry->users[slot];
    uint64_t saved[SG_PREDICATE_SAVED], *kept = saved, vectors[8][2];
    if (user->exit_predicate && !(frame && (kept = sg_area_take(frame, slot, SAVED_SIZE + sg_instance_space(user))))) {
        sg_users_missed(thread, 1ull << slot);
        return 0;
    }
    if (user->flags & SG_USER_SEES_VECTORS)
        sg_see_vectors(vectors, call);
    struct sg_predicate_input input = {
        .integers = &call->registers->rdi,
        .stack = call->slot + 1,
        .vectors = (const uint64_t(*)[2])vectors,
        .saved = kept,
        .depth = frame ? sg_depth_of(frame) : 0,
        .thread = thread->tid,
        .process = thread->shared->pid,
    };
    if (sg_predicate_holds((const struct sg_predicate *)(sg_pool + user->entry_predicate), &input))
        return 1;
    sg_user_filtered(thread, slot);
    return 0;
}

/* Whether the exit part does; `registers` are 0 for a call that has been left without returning. */
int sg_user_exit_holds(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, uint64_t now, const struct sg_exit_registers *registers)
{
    const struct sg_user *user = &sg_registry->users[slot];
    if (!user->exit_predicate)
        return 1;
    struct sg_predicate_input input = {
        .saved = sg_area_part(frame, slot),
        .returned = registers != 0,
        .result = registers ? registers->rax : 0,
        .result_high = registers ? registers->rdx : 0,
        .float_result = registers ? registers->xmm[0].low : 0,
        .ticks = sg_duration_of(frame, now),
        .depth = sg_depth_of(frame),
        .thread = thread->tid,
        .process = thread->shared->pid,
    };
    if (sg_predicate_holds((const struct sg_predicate *)(sg_pool + user->exit_predicate), &input))
        return 1;
    sg_user_filtered(thread, slot);
    return 0;
}

/*
 * Who of some users has registered first, and who last. Their epochs tell: these do not change while a call has them, whoever
 * comes and goes meanwhile. Where the order is that of the slots there is nothing to compare.
 */
static uint32_t first_of(uint64_t users)
{
    uint32_t first = (uint32_t)__builtin_ctzll(users);
    for (uint64_t rest = sg_registry->has_order ? users & (users - 1) : 0; rest; rest &= rest - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(rest);
        if (sg_registry->epochs[slot] < sg_registry->epochs[first])
            first = slot;
    }
    return first;
}

static uint32_t last_of(uint64_t users)
{
    uint32_t last = 63 - (uint32_t)__builtin_clzll(users);
    for (uint64_t rest = sg_registry->has_order ? users & ~(1ull << last) : 0; rest; rest &= rest - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(rest);
        if (sg_registry->epochs[slot] > sg_registry->epochs[last])
            last = slot;
    }
    return last;
}

/* It has been left without returning, by longjmp or an exception: nothing of it is being done any more. */
void sg_use_forget_left(struct sg_thread *thread, uint64_t from)
{
    struct sg_shared_thread *shared = thread->shared;
    if (from > shared->busy_stack && sg_on_own_stack(thread, from) == sg_on_own_stack(thread, shared->busy_stack))
        shared->busy = 0;
}

/* What one user does at the entry; whether it wants the exit. */
static inline int enter_one(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, const struct sg_user_call *call,
                            struct sg_handling *handling)
{
    const struct sg_user *user = &sg_registry->users[slot];
    uint64_t value;
    if (user->entry_predicate && !entry_holds(thread, frame, slot, call))
        return 0;
    switch (user->kind) {
    case SG_USER_COUNTER:
        if (user->exit_predicate)
            return 1;
        add_call(thread, slot, call->function);
        return 0;
    case SG_USER_HISTOGRAM:
    case SG_USER_TOTALS:
        if ((user->value & SG_VALUE_SOURCE) < SG_VALUE_ARGUMENT)
            return 1;
        if (!read_argument(call, user->value, &value)) {
            sg_losses_of(thread, slot)->missed++;
            return 0;
        }
        if (user->exit_predicate) { /* its data is the argument, until the exit decides */
            *(uint64_t *)sg_user_data(frame, slot, 0) = value;
            return 1;
        }
        add_value(thread, slot, call->function, value);
        return 0;
    case SG_USER_HANDLER:
        return sg_handler_enter(thread, handling, frame, slot, call);
    default:
        return 1;
    }
}

/* Whether the user of a slot is the one that it was when a call began, by the epoch that its entry has read. */
static inline int is_same(uint32_t slot, uint64_t epoch)
{
    return sg_registry->epochs[slot] <= epoch;
}

/*
 * Runs the entry sides in the order of registration. Returns the users whose exit is to run. `frame` is the call's, or 0 if
 * there is none: then nobody's exit will.
 */
uint64_t sg_users_at_entry(struct sg_thread *thread, struct sg_frame *frame, const struct sg_user_call *call)
{
    uint64_t asked = call->users & sg_registry->at_entry, wanted = call->users & ~asked & sg_registry->at_exit;
    uint64_t keeping = call->users & sg_registry->with_data;
    if (frame && sg_registry->with_instances)
        sg_users_over(thread, frame); /* what the frame's last call was left with */
    if (keeping && !(frame && sg_area_begin(frame, call->epoch))) {
        sg_users_missed(thread, keeping);
        asked &= ~keeping;
    }
    struct sg_handling handling;
    struct sg_use use;
    sg_handling_begin(&handling);
    for (uint64_t there = sg_use_begin(thread, asked, (uint64_t)call->slot, &use); there;) {
        uint32_t slot = first_of(there);
        there &= ~(1ull << slot);
        if (is_same(slot, call->epoch))
            wanted |= (uint64_t)(enter_one(thread, frame, slot, call, &handling) != 0) << slot;
    }
    sg_handling_end(thread, &handling);
    sg_use_end(thread, &use);
    return frame ? wanted : 0;
}

static inline void leave_one(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, uint64_t now,
                             const struct sg_exit_registers *registers, struct sg_handling *handling)
{
    const struct sg_user *user = &sg_registry->users[slot];
    if (user->exit_predicate && !sg_user_exit_holds(thread, frame, slot, now, registers))
        return;
    switch (user->kind) {
    case SG_USER_COUNTER:
        add_call(thread, slot, frame->function);
        break;
    case SG_USER_HISTOGRAM:
    case SG_USER_TOTALS:
        add_value(thread, slot, frame->function,
                  user->value == SG_VALUE_DURATION                      ? sg_duration_of(frame, now)
                  : (user->value & SG_VALUE_SOURCE) != SG_VALUE_RESULT ? *(uint64_t *)sg_user_data(frame, slot, 0)
                  : user->value & SG_VALUE_FLOAT                       ? registers->xmm[0].low
                                                                       : registers->rax);
        break;
    case SG_USER_HANDLER:
        sg_handler_leave(thread, handling, frame, slot, now, registers);
        break;
    default:
        break;
    }
}

/* Those of a call's users that have not gone since, but for recorders: these are taken off calls in flight when they go. */
static uint64_t still_there(const struct sg_open *open)
{
    uint64_t users = open->users & sg_registry->live & ~sg_registry->faulted, found = 0;
    for (uint64_t rest = users & ~sg_registry->recorders; rest; rest &= rest - 1) {
        uint32_t user = (uint32_t)__builtin_ctzll(rest);
        if (is_same(user, open->epoch))
            found |= 1ull << user;
    }
    return found;
}

/* Runs the exit sides of all users but recorders, in reverse order. `now`: 0 if none of them looks at the clock. */
void sg_users_at_return(struct sg_thread *thread, struct sg_frame *frame, uint64_t now, const struct sg_exit_registers *registers)
{
    struct sg_handling handling;
    struct sg_use use;
    sg_handling_begin(&handling);
    for (uint64_t there = sg_use_begin(thread, frame->open->users & ~sg_registry->recorders, frame->slot, &use); there;) {
        uint32_t slot = last_of(there);
        there &= ~(1ull << slot);
        if (is_same(slot, frame->open->epoch))
            leave_one(thread, frame, slot, now, registers, &handling);
    }
    sg_handling_end(thread, &handling);
    sg_use_end(thread, &use);
    if (sg_registry->with_instances)
        sg_users_over(thread, frame);
}

/* A call is over, in whatever way: instances that it still has are given back to those of their users that have not gone. */
void sg_users_over(struct sg_thread *thread, struct sg_frame *frame)
{
    uint64_t epoch;
    for (uint64_t users = sg_area_holding(frame, &epoch); users; users &= users - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(users);
        struct sg_use use;
        uint64_t there = sg_use_begin(thread, 1ull << slot, 0 /* which says nothing of where this thread is */, &use);
        if (there && is_same(slot, epoch))
            sg_instance_give_back(frame, slot);
        else
            sg_area_hold(frame, slot, 0);
        sg_use_end(thread, &use);
    }
}

/* The call has been left without returning. */
void sg_users_unwound(struct sg_thread *thread, const struct sg_frame *frame)
{
    for (uint64_t users = still_there(frame->open); users; users &= users - 1)
        sg_losses_of(thread, (uint32_t)__builtin_ctzll(users))->unwound++;
}
