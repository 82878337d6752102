/*
 * The users of a call: who they are, what each does at the entry, and what at the exit. The recorder in slot 0, alone on a
 * function, does without this: the plain paths of paths.S serve it.
 */
#include "frames.h"

#define ADD_TO(cell, value) __asm__ volatile("addq %1, %0" : "+m"(*(cell)) : "er"((uint64_t)(value)) : "cc")

/* Nobody yet; numbers of functions and cells begin with 1. */
void sg_users_start(void)
{
    sg_registry->epoch = 1;
    sg_registry->next_function = sg_registry->next_cell = 1;
}

/* Whose call of this function it is, by one epoch of the registry. */
uint64_t sg_users_of(const struct sg_function *function, int from_executable, uint64_t *epoch)
{
    uint64_t users, armed;
    do {
        *epoch = __atomic_load_n(&sg_registry->epoch, __ATOMIC_ACQUIRE);
        users = __atomic_load_n(&function->users[sg_registry->side & 1], __ATOMIC_ACQUIRE);
        armed = __atomic_load_n(&sg_registry->armed, __ATOMIC_ACQUIRE);
    } while (__atomic_load_n(&sg_registry->epoch, __ATOMIC_ACQUIRE) != *epoch);
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
    if (users & 1)
        thread->shared->missed++;
    for (users &= ~1ull; users; users &= users - 1)
        losses(thread, (uint32_t)__builtin_ctzll(users))->missed++;
}

static uint64_t first_cell(const struct sg_user *user, const struct sg_function *function, uint64_t cells)
{
    const uint32_t *ranks = (const uint32_t *)(sg_pool + user->ranks);
    uint32_t rank = function->cell < user->rank_count ? ranks[function->cell] : 0;
    return rank ? user->first_cell + (rank - 1) * cells : 0;
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
    uint64_t first = first_cell(user, function, !histogram ? SG_TOTALS_CELLS : has_sign ? 2 * SG_HISTOGRAM_CELLS : SG_HISTOGRAM_CELLS);
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
    uint64_t first = first_cell(&sg_registry->users[slot], function, 1);
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

/* What one user does at the entry; whether it wants the exit. */
static int enter_one(struct sg_thread *thread, uint32_t slot, const struct sg_function *function, const struct sg_entry_registers *registers)
{
    const struct sg_user *user = &sg_registry->users[slot];
    switch (user->kind) {
    case SG_USER_COUNTER:
        add_call(thread, slot, function);
        return 0;
    case SG_USER_HISTOGRAM:
    case SG_USER_TOTALS:
        if (user->value < SG_VALUE_ARGUMENT)
            return 1;
        add_value(thread, slot, function, argument(registers, user->value - SG_VALUE_ARGUMENT));
        return 0;
    default:
        return 1;
    }
}

/*
 * Runs the entry sides in the order of registration. Returns the users whose exit is to run. `frame` is the call's, or 0 if
 * there is none: then nobody's exit will.
 */
uint64_t sg_users_at_entry(struct sg_thread *thread, struct sg_frame *frame, struct sg_function *function, uint64_t users,
                           uint64_t *slot, const struct sg_entry_registers *registers)
{
    uint64_t asked = users & sg_registry->at_entry, wanted = users & ~asked & sg_registry->at_exit;
    (void)slot;
    if (!sg_registry->has_order) {
        for (; asked; asked &= asked - 1) {
            uint32_t user = (uint32_t)__builtin_ctzll(asked);
            wanted |= (uint64_t)(enter_one(thread, user, function, registers) != 0) << user;
        }
    } else {
        for (uint32_t i = 0; asked && i < SG_USERS; i++) {
            uint32_t user = sg_registry->order[i] % SG_USERS;
            if (!(asked >> user & 1))
                continue;
            asked &= ~(1ull << user);
            wanted |= (uint64_t)(enter_one(thread, user, function, registers) != 0) << user;
        }
    }
    return frame ? wanted : 0;
}

static void leave_one(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, uint64_t now, const struct sg_exit_registers *registers)
{
    const struct sg_user *user = &sg_registry->users[slot];
    switch (user->kind) {
    case SG_USER_HISTOGRAM:
    case SG_USER_TOTALS:
        add_value(thread, slot, frame->function, user->value == SG_VALUE_RESULT ? registers->rax : sg_duration_of(frame, now));
        break;
    default:
        break;
    }
}

/* Those of a call's users that have not gone since. */
static uint64_t still_there(const struct sg_open *open)
{
    uint64_t users = open->users & sg_registry->live & ~sg_registry->faulted, found = 0;
    for (uint64_t rest = users & ~1ull; rest; rest &= rest - 1) {
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
    if (!sg_registry->has_order) {
        while (users) {
            uint32_t user = 63 - (uint32_t)__builtin_clzll(users);
            users &= ~(1ull << user);
            leave_one(thread, frame, user, now, registers);
        }
        return;
    }
    for (uint32_t i = SG_USERS; users && i > 0; i--) {
        uint32_t user = sg_registry->order[i - 1] % SG_USERS;
        if (users >> user & 1)
            leave_one(thread, frame, user, now, registers);
        users &= ~(1ull << user);
    }
}

/* The call has been left without returning. */
void sg_users_unwound(struct sg_thread *thread, const struct sg_frame *frame)
{
    for (uint64_t users = still_there(frame->open); users; users &= users - 1)
        losses(thread, (uint32_t)__builtin_ctzll(users))->unwound++;
}
