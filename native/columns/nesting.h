/*
 * Who called whom, from calls in the order of their starts.
 *
 * Almost always the calls of a thread nest like brackets, and a stack would do. Two things do not nest: the frames of a
 * coroutine stay in flight while its thread does other things, and an unwound call ends where that was noticed. So the
 * calls in flight are kept by depth, the newest of each depth first, and the rule is: the caller is the newest call in
 * flight of the next smaller depth that has one. For brackets this is the stack, at the same price.
 *
 * Depths end at 65535. Calls of that depth, and deeper ones, count as callers of each other as brackets do.
 */
#ifndef SHADOWGRAPH_NESTING_H
#define SHADOWGRAPH_NESTING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NEST_DEPTHS 65536
#define NEST_DEEPEST (NEST_DEPTHS - 1)

struct nest_call {
    int64_t end;
    uint32_t label; /* what the user of this header wants to know of a caller */
    uint32_t older; /* the next newest call of the same depth, 0: none */
};

struct nest {
    struct nest_call *calls; /* calls[0] is not used */
    uint32_t capacity, used, unused; /* unused: head of the list of places that are free again */
    uint32_t newest[NEST_DEPTHS];
    uint64_t occupied[NEST_DEPTHS / 64]; /* depths with a newest call, which may have ended meanwhile */
};

static inline bool nest_init(struct nest *nest)
{
    memset(nest, 0, sizeof(*nest));
    nest->capacity = 1024;
    nest->used = 1;
    nest->calls = malloc(nest->capacity * sizeof(*nest->calls));
    return nest->calls != NULL;
}

static inline void nest_deinit(struct nest *nest)
{
    free(nest->calls);
    nest->calls = NULL;
}

/* Forget all calls: another thread begins. */
static inline void nest_clear(struct nest *nest)
{
    for (int word = 0; word < NEST_DEPTHS / 64; word++) {
        if (nest->occupied[word]) {
            memset(&nest->newest[word * 64], 0, 64 * sizeof(nest->newest[0]));
            nest->occupied[word] = 0;
        }
    }
    nest->used = 1;
    nest->unused = 0;
}

static inline void nest_pop(struct nest *nest, uint32_t depth)
{
    uint32_t place = nest->newest[depth];

    nest->newest[depth] = nest->calls[place].older;
    nest->calls[place].older = nest->unused;
    nest->unused = place;
    if (!nest->newest[depth])
        nest->occupied[depth / 64] &= ~(UINT64_C(1) << depth % 64);
}

/* A caller may end in the very nanosecond in which a call of no length starts; otherwise it must go on. */
static inline bool nest_is_over(const struct nest_call *call, int64_t start, int64_t end)
{
    return call->end < start || (call->end == start && end != start);
}

/* The newest call of a depth that is in flight, 0 if there is none. */
static inline uint32_t nest_in_flight(struct nest *nest, uint32_t depth, int64_t start, int64_t end)
{
    while (nest->newest[depth] && nest_is_over(&nest->calls[nest->newest[depth]], start, end))
        nest_pop(nest, depth);
    return nest->newest[depth];
}

/* The largest occupied depth below this one, -1 if there is none. */
static inline int32_t nest_next_depth(const struct nest *nest, uint32_t depth)
{
    int32_t word = (int32_t)(depth / 64);
    uint64_t bits = nest->occupied[word] & ((UINT64_C(1) << depth % 64) - 1);

    while (!bits && word > 0)
        bits = nest->occupied[--word];
    return bits ? word * 64 + 63 - __builtin_clzll(bits) : -1;
}

/* The caller of a call, 0 if it has none in the trace. Valid until the next nest_enter. */
static inline uint32_t nest_caller(struct nest *nest, int64_t start, int64_t end, uint32_t depth)
{
    uint32_t caller = 0;

    if (depth == NEST_DEEPEST && (caller = nest_in_flight(nest, depth, start, end)))
        return caller;
    if (depth > 0 && (caller = nest_in_flight(nest, depth - 1, start, end)))
        return caller;
    for (int32_t next = nest_next_depth(nest, depth); next >= 0; next = nest_next_depth(nest, (uint32_t)next)) {
        caller = nest_in_flight(nest, (uint32_t)next, start, end);
        if (caller)
            return caller;
    }
    return 0;
}

static inline uint32_t nest_place(struct nest *nest)
{
    uint32_t place = nest->unused;

    if (place) {
        nest->unused = nest->calls[place].older;
        return place;
    }
    if (nest->used == nest->capacity) {
        struct nest_call *grown = realloc(nest->calls, (size_t)nest->capacity * 2 * sizeof(*grown));
        if (!grown)
            return 0;
        nest->calls = grown;
        nest->capacity *= 2;
    }
    return nest->used++;
}

/* Take in a call; false where memory ran out. */
static inline bool nest_enter(struct nest *nest, int64_t start, int64_t end, uint32_t depth, uint32_t label)
{
    uint32_t place = nest->newest[depth];

    if (place && nest->calls[place].end <= start && depth != NEST_DEEPEST) {
        /* The usual case: the call before at this depth has ended, its place is taken over. */
        nest->calls[place].end = end;
        nest->calls[place].label = label;
        return true;
    }
    place = nest_place(nest);
    if (!place)
        return false;
    nest->calls[place] = (struct nest_call){.end = end, .label = label, .older = nest->newest[depth]};
    nest->newest[depth] = place;
    nest->occupied[depth / 64] |= UINT64_C(1) << depth % 64;
    return true;
}

#endif
