/*
 * Functions of an arena as the controller changes them: who wants their calls, and where their thunks lead. What each word
 * means says arena.h; what may be changed when, agent/registry.py.
 */
#ifndef SHADOWGRAPH_ENTRIES_H
#define SHADOWGRAPH_ENTRIES_H

#include <shadowgraph/arena.h>

#define SG_EXPORT __attribute__((visibility("default")))

/* The agent's entry paths, and the users by what decides about them: see agent/entries.py. */
struct sg_leading {
    uint64_t general, true_return, count, plain, plain_from_caller, plain_and_count, several, frugal_handlers, measure;
    uint64_t armed, counters, measures, frugal, recorders;
};

SG_EXPORT int64_t sg_functions_put_on(struct sg_function *functions, const int64_t *numbers, int64_t count, uint64_t user);
SG_EXPORT int64_t sg_functions_lead(struct sg_function *functions, const int64_t *numbers, int64_t count,
                                    const struct sg_leading *leading);

#endif
