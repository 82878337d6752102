/*
 * The words of functions that change when users come and go, for many functions at once. Threads of the target read them
 * meanwhile: each is written by one store, and only if it is another one than before, so that the lines of those that
 * stay as they are stay in the caches of the target's processors.
 */
#include "entries.h"

#define HOOKS (SG_FLAG_EXEC | SG_FLAG_LOADED | SG_FLAG_CLONE | SG_FLAG_EXIT | SG_FLAG_SIGACTION)
#define AHEAD 16
#define PLAIN 1ull /* the recorder that the plain paths of the agent serve has slot 0 (native/agent/paths.S) */

static inline void set(uint64_t *word, uint64_t value)
{
    if (__atomic_load_n(word, __ATOMIC_RELAXED) != value)
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* The next one. Processors of the target have its line as well; it takes a while until one that is to be written is ours. */
static inline struct sg_function *next(struct sg_function *functions, const int64_t *numbers, int64_t at, int64_t count)
{
    if (at + AHEAD < count)
        __builtin_prefetch(&functions[numbers[at + AHEAD]], 1);
    return &functions[numbers[at]];
}

/* Whether all these numbers are those of functions. */
static int are_functions(const int64_t *numbers, int64_t count)
{
    uint64_t largest = 0;

    for (int64_t at = 0; at < count; at++)
        largest = (uint64_t)numbers[at] > largest ? (uint64_t)numbers[at] : largest;
    return largest < SG_FUNCTIONS;
}

/* A user (its bit) wants the calls of these functions, whichever side counts; 0 if a number is none. */
int64_t sg_functions_put_on(struct sg_function *functions, const int64_t *numbers, int64_t count, uint64_t user)
{
    if (!are_functions(numbers, count))
        return 0;
    for (int64_t at = 0; at < count; at++) {
        struct sg_function *function = next(functions, numbers, at, count);

        set(&function->users[0], function->users[0] | user);
        set(&function->users[1], function->users[1] | user);
    }
    return 1;
}

/* Where a function's thunk leads, and which recorders alone want its calls. */
static uint64_t entry_of(const struct sg_function *function, const struct sg_leading *to, uint64_t *recorders)
{
    uint64_t users = (function->users[0] | function->users[1]) & to->armed;
    uint64_t counted = users & to->counters, others = users & ~to->counters;
    int differ = function->users[0] != function->users[1];
    int usual = users && !(function->flags & SG_FLAG_VALUES) && !differ;
    int from_all = !(function->callers & users), everybody = usual && from_all;
    int plain = usual && (to->recorders & PLAIN) && others == PLAIN;
    uint64_t beside_handlers = to->frugal | to->counters | (to->recorders & PLAIN);

    *recorders = usual && !(users & ~to->recorders) ? users : 0;
    if (function->flags & HOOKS)
        return to->general;
    if (function->flags & SG_FLAG_TRUE_RETURN)
        return to->true_return;
    if (!users)
        return function->body;
    if (!others && from_all && !differ)
        return to->count;
    if (plain && counted && from_all)
        return to->plain_and_count;
    if (plain && !counted)
        return function->callers & PLAIN ? to->plain_from_caller : to->plain;
    if (*recorders && from_all)
        return to->several;
    if (everybody && (users & to->frugal) && !(users & ~beside_handlers))
        return to->frugal_handlers;
    if (everybody && !counted && !(users & ~to->measures))
        return to->measure;
    return to->general;
}

/* Leads the thunks of these functions to the paths that serve who is on them now; 0 if a number is none. */
int64_t sg_functions_lead(struct sg_function *functions, const int64_t *numbers, int64_t count, const struct sg_leading *leading)
{
    if (!are_functions(numbers, count))
        return 0;
    for (int64_t at = 0; at < count; at++) {
        struct sg_function *function = next(functions, numbers, at, count);
        uint64_t recorders, enter = entry_of(function, leading, &recorders);

        set(&function->recorders, recorders); /* first: the path may look at it */
        set(&function->enter, enter);
    }
    return 1;
}
