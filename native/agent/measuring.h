/*
 * Adding a value to the cells of a histogram or of totals (users.h). Each cell is added to by one instruction, so that a
 * signal handler comes before or behind it.
 */
#ifndef SHADOWGRAPH_MEASURING_H
#define SHADOWGRAPH_MEASURING_H

#include "agent.h"

#define SG_ADD_TO(cell, value) __asm__ volatile("addq %1, %0" : "+m"(*(cell)) : "er"((uint64_t)(value)) : "cc")

/* The number of a user's first cell for a function; 0: it is none of its functions. */
static inline uint64_t sg_first_cell(const struct sg_user *user, const struct sg_function *function)
{
    const uint32_t *table = (const uint32_t *)(sg_pool + __atomic_load_n(&user->cell_table, __ATOMIC_ACQUIRE));
    return function->cell < table[0] ? table[function->cell] : 0;
}

static inline void sg_add_maximum(uint64_t *cell, uint64_t value)
{
    for (uint64_t known = *cell; __builtin_expect(known < value, 0); known = *cell)
        if (sg_swap_own(cell, known, value))
            return;
}

/* Sixteen buckets for the first sixteen values, then eight to each power of two. */
static inline uint32_t sg_bucket_of(uint64_t value)
{
    if (value < 2u << SG_BUCKET_BITS)
        return (uint32_t)value;
    uint32_t power = 63 - (uint32_t)__builtin_clzll(value);
    uint32_t part = (uint32_t)(value >> (power - SG_BUCKET_BITS)) & ((1u << SG_BUCKET_BITS) - 1);
    return ((power - SG_BUCKET_BITS + 1) << SG_BUCKET_BITS) + part;
}

/* All cells of a function lie in one page. */
static inline void sg_add_to_cells(uint64_t *cells, uint64_t value, int with_maximum, int with_bucket)
{
    SG_ADD_TO(cells + SG_CELL_SUM, value);
    if (with_maximum)
        sg_add_maximum(cells + SG_CELL_MAXIMUM, value);
    if (with_bucket)
        SG_ADD_TO(cells + SG_CELL_BUCKETS + sg_bucket_of(value), 1);
    SG_ADD_TO(cells + SG_CELL_COUNT, 1);
}

/* floats.c: the same of a double, by the number of the first cell; 0 if there is no room. */
SG_HIDDEN int sg_add_float(struct sg_thread *thread, uint64_t first, uint64_t bits, int with_bucket);

#endif
