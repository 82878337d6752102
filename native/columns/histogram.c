#include "histogram.h"

#include <stdlib.h>
#include <string.h>

static bool count_value(struct histogram *histogram, uint64_t value)
{
    struct histogram_bucket bucket = histogram_bucket(value);

    if (!histogram->octaves[bucket.octave]) {
        uint32_t *counters = aligned_alloc(64, HISTOGRAM_SUBS * sizeof(*counters));
        if (!counters)
            return false;
        memset(counters, 0, HISTOGRAM_SUBS * sizeof(*counters));
        histogram->octaves[bucket.octave] = counters;
    }
    if (++histogram->octaves[bucket.octave][bucket.sub] == 0)
        return histogram_carry(histogram, bucket);
    return true;
}

/* A counter has gone round. */
bool histogram_carry(struct histogram *histogram, struct histogram_bucket bucket)
{
    uint16_t *grown = realloc(histogram->carries, (histogram->carry_count + 1) * sizeof(*grown));

    if (!grown)
        return false;
    grown[histogram->carry_count++] = (uint16_t)(bucket.octave * HISTOGRAM_SUBS + (int)bucket.sub);
    histogram->carries = grown;
    return true;
}

static uint64_t counter(const struct histogram *histogram, int octave, int sub)
{
    uint64_t count = histogram->octaves[octave] ? histogram->octaves[octave][sub] : 0;

    for (uint32_t at = 0; at < histogram->carry_count; at++)
        count += (uint64_t)(histogram->carries[at] == octave * HISTOGRAM_SUBS + sub) << 32;
    return count;
}

/* From a list of values to buckets. */
static bool promote(struct histogram *histogram)
{
    for (int at = 0; at < HISTOGRAM_EXACT; at++) {
        if (!count_value(histogram, histogram->exact[at]))
            return false;
    }
    free(histogram->exact);
    histogram->exact = NULL;
    histogram->counted = true;
    return true;
}

/* The first values, and those of a power of two that had none yet. */
bool histogram_add_slowly(struct histogram *histogram, uint64_t value)
{
    if (histogram->counted)
        return count_value(histogram, value);
    if (histogram->count == HISTOGRAM_EXACT)
        return promote(histogram) && count_value(histogram, value);
    if (!histogram->exact) {
        histogram->exact = malloc(HISTOGRAM_EXACT * sizeof(uint64_t));
        if (!histogram->exact)
            return false;
    }
    histogram->exact[histogram->count++] = value;
    return true;
}

static uint64_t middle(int octave, uint64_t sub)
{
    uint64_t width;

    if (octave == 0)
        return sub;
    width = UINT64_C(1) << (octave - 1);
    return (HISTOGRAM_SUBS + sub) * width + (width - 1) / 2;
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

static uint64_t rank_of(double quantile, uint64_t count)
{
    double exact = quantile * (double)count;
    uint64_t rank = (uint64_t)exact;

    rank += (double)rank < exact;
    return rank ? rank : 1;
}

static uint64_t exact_quantile(const struct histogram *histogram, double quantile)
{
    uint64_t values[HISTOGRAM_EXACT];

    memcpy(values, histogram->exact, histogram->count * sizeof(*values));
    qsort(values, histogram->count, sizeof(*values), compare);
    return values[rank_of(quantile, histogram->count) - 1];
}

/* The smallest value that at least this share of all values does not exceed (nearest rank); 0 without values. */
uint64_t histogram_quantile(const struct histogram *histogram, double quantile)
{
    uint64_t count = 0, seen = 0, rank;

    if (!histogram->counted)
        return histogram->count ? exact_quantile(histogram, quantile) : 0;
    for (int octave = 0; octave < HISTOGRAM_OCTAVES; octave++) {
        for (int sub = 0; histogram->octaves[octave] && sub < HISTOGRAM_SUBS; sub++)
            count += counter(histogram, octave, sub);
    }
    rank = rank_of(quantile, count);
    for (int octave = 0; octave < HISTOGRAM_OCTAVES; octave++) {
        for (int sub = 0; histogram->octaves[octave] && sub < HISTOGRAM_SUBS; sub++) {
            seen += counter(histogram, octave, sub);
            if (seen >= rank)
                return middle(octave, (uint64_t)sub);
        }
    }
    return 0;
}

void histogram_deinit(struct histogram *histogram)
{
    for (int octave = 0; octave < HISTOGRAM_OCTAVES; octave++)
        free(histogram->octaves[octave]);
    free(histogram->exact);
    free(histogram->carries);
    *histogram = (struct histogram){0};
}
