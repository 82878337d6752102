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
#define HISTOGRAM_OCTAVES 58

struct histogram {
    uint64_t count;
    uint64_t *exact;    /* the first HISTOGRAM_EXACT values; NULL before the first and after the last of them */
    uint64_t **octaves; /* 128 counters for each power of two that occurred */
};

bool histogram_add(struct histogram *histogram, uint64_t value);
uint64_t histogram_quantile(const struct histogram *histogram, double quantile);
void histogram_deinit(struct histogram *histogram);

#endif
