/*
 * The users of a call: who they are, what each does at the entry, and what at the exit. The recorder in slot 0, alone on a
 * function, does without this: the plain paths of paths.S serve it.
 */
#include "frames.h"
#include "shadowgraph/predicate.h"

#define SAVED_SIZE (8 * SG_PREDICATE_SAVED)
#define ADD_TO(cell, value) __asm__ volatile("addq %1, %0" : "+m"(*(cell)) : "er"((uint64_t)(value)) : "cc")

/* Nobody yet; numbers of functions and cells begin with 1. */
void sg_users_start(void)
{
    sg_registry->epoch = 1;
    sg_registry->next_function = sg_registry->next_cell = 1;
}

/*
 * Whose call of this function it is, by one epoch of the registry, and one side: the masks of the other side may be half
 * written by whoever exchanges a filter, and have been so when this side was the other one.
 */
uint64_t sg_users_of(const struct sg_function *function, int from_executable, uint64_t *epoch)
{
    uint64_t users, armed;
    uint32_t side;
    do {
        *epoch = __atomic_load_n(&sg_registry->epoch, __ATOMIC_ACQUIRE);
        side = __atomic_load_n(&sg_registry->side, __ATOMIC_ACQUIRE);
        users = __atomic_load_n(&function->users[side & 1], __ATOMIC_ACQUIRE);
        armed = __atomic_load_n(&sg_registry->armed, __ATOMIC_ACQUIRE);
    } while (__atomic_load_n(&sg_registry->side, __ATOMIC_ACQUIRE) != side || __atomic_load_n(&sg_registry->epoch, __ATOMIC_ACQUIRE) != *epoch);
    users &= armed & ~sg_registry->faulted;
    return from_executable ? users : users & ~function->callers;
}

static struct sg_losses *losses(const struct sg_thread *thread, uint32_t user)
{
    return &sg_losses[(uint64_t)thread->index * SG_USERS + user];
}

/* These users do not get this call. */
void sg_users_missed(struct sg_thread *thread, uint64_t users)
{
    if (users & sg_recorder_bit())
        thread->shared->missed++;
    for (users &= ~sg_recorder_bit(); users; users &= users - 1)
        losses(thread, (uint32_t)__builtin_ctzll(users))->missed++;
}

static void count_filtered(struct sg_thread *thread, uint32_t slot)
{
    if (slot)
        losses(thread, slot)->filtered++;
    else
        thread->shared->filtered++;
}

static uint64_t first_cell(const struct sg_user *user, const struct sg_function *function)
{
    const uint32_t *table = (const uint32_t *)(sg_pool + __atomic_load_n(&user->cell_table, __ATOMIC_ACQUIRE));
    return function->cell < table[0] ? table[function->cell] : 0;
}

static void add_maximum(uint64_t *cell, uint64_t value)
{
    for (uint64_t known = *cell; known < value; known = *cell)
        if (sg_swap_own(cell, known, value))
            return;
}

/* Sixteen buckets for the first sixteen values, then eight to each power of two. */
static uint32_t bucket_of(uint64_t value)
{
    if (value < 2u << SG_BUCKET_BITS)
        return (uint32_t)value;
    uint32_t power = 63 - (uint32_t)__builtin_clzll(value);
    uint32_t part = (uint32_t)(value >> (power - SG_BUCKET_BITS)) & ((1u << SG_BUCKET_BITS) - 1);
    return ((power - SG_BUCKET_BITS + 1) << SG_BUCKET_BITS) + part;
}

static void add_value(struct sg_thread *thread, uint32_t slot, const struct sg_function *function, uint64_t value)
{
    const struct sg_user *user = &sg_registry->users[slot];
    int histogram = user->kind == SG_USER_HISTOGRAM, has_sign = user->value != SG_VALUE_DURATION;
    uint64_t first = first_cell(user, function);
    int negative = has_sign && (int64_t)value < 0;
    if (histogram && negative) {
        first += first ? SG_HISTOGRAM_CELLS : 0;
        value = ~value;
    }
    uint64_t *cells = first ? sg_cell(thread, first) : 0;
    if (!cells) {
        losses(thread, slot)->missed++;
        return;
    }
    /* All these cells lie in one page. */
    ADD_TO(cells + SG_CELL_SUM, value);
    if (histogram || !negative)
        add_maximum(cells + SG_CELL_MAXIMUM, value);
    if (user->kind == SG_USER_HISTOGRAM)
        ADD_TO(cells + SG_CELL_BUCKETS + bucket_of(value), 1);
    ADD_TO(cells + SG_CELL_COUNT, 1);
}

/* Counts a call for all counters without a condition at once; returns the other users. */
uint64_t sg_users_count(struct sg_thread *thread, const struct sg_function *function, uint64_t users)
{
    uint64_t counters = users & sg_registry->counters;
    uint64_t *cell = counters ? sg_cell(thread, function->cell) : 0;
    if (cell)
        ADD_TO(cell, 1);
    else
        sg_users_missed(thread, counters);
    return users & ~counters;
}

static void add_call(struct sg_thread *thread, uint32_t slot, const struct sg_function *function)
{
    uint64_t first = first_cell(&sg_registry->users[slot], function);
    uint64_t *cell = first ? sg_cell(thread, first) : 0;
    if (cell)
        ADD_TO(cell, 1);
    else
        losses(thread, slot)->missed++;
}

static uint64_t argument(const struct sg_entry_registers *r, uint32_t number)
{
    const uint64_t integers[] = {r->rdi, r->rsi, r->rdx, r->rcx, r->r8, r->r9};
    return integers[number % 6];
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
    count_filtered(thread, slot);
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
    count_filtered(thread, slot);
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

/*
 * Doing something for a user. The thread says so, and then looks whether the user is still the one whose call it is. Whoever takes
 * a user off gives its slot, cells and place in the pool to nobody before all threads that say so are done (R11): a thread may
 * stand anywhere in here for as long as the kernel likes. One instruction each sets and clears the bit; what orders the former
 * with the look is the controller's barrier (agent/barrier.py).
 */
struct use {
    uint64_t bit, stack;
};

__attribute__((noinline)) static void forget_left(struct sg_thread *thread, uint64_t from)
{
    struct sg_shared_thread *shared = thread->shared;
    if (from > shared->busy_stack && sg_on_own_stack(thread, from) == sg_on_own_stack(thread, shared->busy_stack))
        shared->busy = 0; /* left without returning */
}

/* `from`: the slot of the call. */
static inline int begin_use(struct sg_thread *thread, uint32_t slot, uint64_t from, uint64_t epoch, struct use *use)
{
    struct sg_shared_thread *shared = thread->shared;
    if (shared->busy)
        forget_left(thread, from);
    use->stack = shared->busy_stack;
    use->bit = 1ull << slot & ~shared->busy; /* a signal handler's call: it stays set for the one that was interrupted */
    if (!shared->busy)
        shared->busy_stack = (uint64_t)use;
    __asm__ volatile("orq %1, %0" : "+m"(shared->busy) : "r"(1ull << slot) : "memory", "cc");
    return (sg_registry->live & ~sg_registry->faulted) >> slot & 1 && sg_registry->epochs[slot] <= epoch;
}

static inline void end_use(struct sg_thread *thread, const struct use *use)
{
    thread->shared->busy_stack = use->stack;
    SG_BEFORE(&thread->shared->busy);
    __asm__ volatile("andq %1, %0" : "+m"(thread->shared->busy) : "r"(~use->bit) : "memory", "cc");
}

/* What one user does at the entry; whether it wants the exit. */
static int enter_one(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, struct sg_user_call *call)
{
    const struct sg_user *user = &sg_registry->users[slot];
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
        if (user->value < SG_VALUE_ARGUMENT)
            return 1;
        if (user->exit_predicate) { /* its data is the argument, until the exit decides */
            *(uint64_t *)sg_user_data(frame, slot, 0) = argument(call->registers, user->value - SG_VALUE_ARGUMENT);
            return 1;
        }
        add_value(thread, slot, call->function, argument(call->registers, user->value - SG_VALUE_ARGUMENT));
        return 0;
    case SG_USER_HANDLER:
        return sg_handler_enter(thread, frame, slot, call);
    default:
        return 1;
    }
}

static int enter_if_there(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, struct sg_user_call *call)
{
    struct use use;
    int wanted = begin_use(thread, slot, (uint64_t)call->slot, call->epoch, &use) && enter_one(thread, frame, slot, call);
    end_use(thread, &use);
    return wanted;
}

/*
 * Runs the entry sides in the order of registration. Returns the users whose exit is to run. `frame` is the call's, or 0 if
 * there is none: then nobody's exit will.
 */
uint64_t sg_users_at_entry(struct sg_thread *thread, struct sg_frame *frame, struct sg_user_call *call)
{
    uint64_t asked = call->users & sg_registry->at_entry, wanted = call->users & ~asked & sg_registry->at_exit;
    uint64_t keeping = call->users & sg_registry->with_data;
    if (frame && sg_registry->with_instances)
        sg_users_over(thread, frame); /* what the frame's last call was left with */
    if (keeping && !(frame && sg_area_begin(frame, call->epoch))) {
        sg_users_missed(thread, keeping);
        asked &= ~keeping;
    }
    while (asked) {
        uint32_t slot = first_of(asked);
        asked &= ~(1ull << slot);
        wanted |= (uint64_t)(enter_if_there(thread, frame, slot, call) != 0) << slot;
    }
    return frame ? wanted : 0;
}

static void leave_one(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, uint64_t now, const struct sg_exit_registers *registers)
{
    const struct sg_user *user = &sg_registry->users[slot];
    if (!sg_user_exit_holds(thread, frame, slot, now, registers))
        return;
    switch (user->kind) {
    case SG_USER_COUNTER:
        add_call(thread, slot, frame->function);
        break;
    case SG_USER_HISTOGRAM:
    case SG_USER_TOTALS:
        add_value(thread, slot, frame->function,
                  user->value == SG_VALUE_RESULT     ? registers->rax
                  : user->value == SG_VALUE_DURATION ? sg_duration_of(frame, now)
                                                     : *(uint64_t *)sg_user_data(frame, slot, 0));
        break;
    case SG_USER_HANDLER:
        sg_handler_leave(thread, frame, slot, now, registers);
        break;
    default:
        break;
    }
}

static void leave_if_there(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, uint64_t now, const struct sg_exit_registers *registers)
{
    struct use use;
    if (begin_use(thread, slot, sg_owner_of_slot(frame)->slot, frame->open->epoch, &use))
        leave_one(thread, frame, slot, now, registers);
    end_use(thread, &use);
}

/* Those of a call's users that have not gone since. */
static uint64_t still_there(const struct sg_open *open)
{
    uint64_t users = open->users & sg_registry->live & ~sg_registry->faulted, found = 0;
    for (uint64_t rest = users & ~sg_recorder_bit(); rest; rest &= rest - 1) {
        uint32_t user = (uint32_t)__builtin_ctzll(rest);
        if (sg_registry->epochs[user] <= open->epoch)
            found |= 1ull << user;
    }
    return found;
}

/* Runs the exit sides of all users but the recorder in slot 0, in reverse order. */
void sg_users_at_return(struct sg_thread *thread, struct sg_frame *frame, uint64_t now, const struct sg_exit_registers *registers)
{
    uint64_t users = still_there(frame->open);
    while (users) {
        uint32_t slot = last_of(users);
        users &= ~(1ull << slot);
        leave_if_there(thread, frame, slot, now, registers);
    }
    if (sg_registry->with_instances)
        sg_users_over(thread, frame);
}

/* A call is over, in whatever way: instances that it still has are given back to those of their users that have not gone. */
void sg_users_over(struct sg_thread *thread, struct sg_frame *frame)
{
    uint64_t epoch;
    for (uint64_t users = sg_area_holding(frame, &epoch); users; users &= users - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(users);
        struct use use;
        if (begin_use(thread, slot, 0 /* which says nothing of where this thread is */, epoch, &use))
            sg_instance_give_back(frame, slot);
        else
            sg_area_hold(frame, slot, 0);
        end_use(thread, &use);
    }
}

/* The call has been left without returning. */
void sg_users_unwound(struct sg_thread *thread, const struct sg_frame *frame)
{
    for (uint64_t users = still_there(frame->open); users; users &= users - 1)
        losses(thread, (uint32_t)__builtin_ctzll(users))->unwound++;
}
