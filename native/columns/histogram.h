/*
 * Quantiles of durations, in memory that does not grow with their number: exact up to HISTOGRAM_EXACT values, then
 * counted in buckets, 128 to each power of two. A bucket's middle is at most 1/256 (0.4 %) away from what fell into
 * it; values below 256 have buckets of their own.
 */
#ifndef SHADOWGRAPH_HISTOGRAM_H
#define SHADOWGRAPH_HISTOGRAM_H

#include <stdbool.h>
#include <stdint.h>

#define HISTOGRAM_EXACT 32
#define HISTOGRAM_SUB_BITS 7
#define HISTOGRAM_SUBS (1 << HISTOGRAM_SUB_BITS)
#define HISTOGRAM_OCTAVES 58

struct histogram {
    uint32_t *octaves[HISTOGRAM_OCTAVES]; /* HISTOGRAM_SUBS counters for each power of two that occurred */
    uint64_t *exact;                      /* the first HISTOGRAM_EXACT values; NULL before and after that */
    uint16_t *carries;                    /* octave * HISTOGRAM_SUBS + sub, once for each 2^32 that were counted */
    uint32_t carry_count;
    uint32_t count; /* of exact values */
    bool counted;   /* values are in buckets */
};

struct histogram_bucket {
    int octave;
    uint64_t sub;
};

static inline struct histogram_bucket histogram_bucket(uint64_t value)
{
    int exponent = 63 - __builtin_clzll(value | (HISTOGRAM_SUBS / 2));
    int octave = exponent - (HISTOGRAM_SUB_BITS - 1);

    /* Octave 0 holds the values below HISTOGRAM_SUBS as they are. */
    return (struct histogram_bucket){octave, value >> (octave - (octave > 0)) & (HISTOGRAM_SUBS - 1)};
}

bool histogram_add_slowly(struct histogram *histogram, uint64_t value);
bool histogram_carry(struct histogram *histogram, struct histogram_bucket bucket);
uint64_t histogram_quantile(const struct histogram *histogram, double quantile);
void histogram_deinit(struct histogram *histogram);

/* Take in a value; false where memory ran out. */
static inline bool histogram_add(struct histogram *histogram, uint64_t value)
{
    struct histogram_bucket bucket = histogram_bucket(value);

    if (!histogram->counted || !histogram->octaves[bucket.octave])
        return histogram_add_slowly(histogram, value);
    /* 32 bits: half the cache lines of 64, and this loop waits for little else. */
    if (++histogram->octaves[bucket.octave][bucket.sub] == 0)
        return histogram_carry(histogram, bucket);
    return true;
}

/* Have in the cache what adding this value will touch: first this, then the next. */
static inline void histogram_prefetch_octave(const struct histogram *histogram, uint64_t value)
{
    __builtin_prefetch(&histogram->octaves[histogram_bucket(value).octave]);
}

static inline void histogram_prefetch(const struct histogram *histogram, uint64_t value)
{
    struct histogram_bucket bucket = histogram_bucket(value);

    if (histogram->octaves[bucket.octave])
        __builtin_prefetch(&histogram->octaves[bucket.octave][bucket.sub], 1);
}

#endif
