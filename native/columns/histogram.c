#include "histogram.h"

#include <stdlib.h>
#include <string.h>

#define SUB_BITS 7
#define SUBS (1 << SUB_BITS)

static bool count_value(struct histogram *histogram, uint64_t value)
{
    int exponent = value < SUBS ? SUB_BITS - 1 : 63 - __builtin_clzll(value);
    int octave = exponent - (SUB_BITS - 1);
    uint64_t sub = octave == 0 ? value : value >> (exponent - SUB_BITS) & (SUBS - 1);

    if (!histogram->octaves[octave]) {
        histogram->octaves[octave] = calloc(SUBS, sizeof(uint64_t));
        if (!histogram->octaves[octave])
            return false;
    }
    histogram->octaves[octave][sub]++;
    return true;
}

/* From a list of values to buckets. */
static bool promote(struct histogram *histogram)
{
    histogram->octaves = calloc(HISTOGRAM_OCTAVES, sizeof(uint64_t *));
    if (!histogram->octaves)
        return false;
    for (int at = 0; at < HISTOGRAM_EXACT; at++) {
        if (!count_value(histogram, histogram->exact[at]))
            return false;
    }
    free(histogram->exact);
    histogram->exact = NULL;
    return true;
}

/* Take in a value; false where memory ran out. */
bool histogram_add(struct histogram *histogram, uint64_t value)
{
    uint64_t number = histogram->count++;

    if (number >= HISTOGRAM_EXACT) {
        if (number == HISTOGRAM_EXACT && !promote(histogram))
            return false;
        return count_value(histogram, value);
    }
    if (number == 0) {
        histogram->exact = malloc(HISTOGRAM_EXACT * sizeof(uint64_t));
        if (!histogram->exact)
            return false;
    }
    histogram->exact[number] = value;
    return true;
}

static uint64_t middle(int octave, uint64_t sub)
{
    uint64_t width;

    if (octave == 0)
        return sub;
    width = UINT64_C(1) << (octave - 1);
    return (SUBS + sub) * width + (width - 1) / 2;
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

/* The smallest value that at least this share of all values does not exceed (nearest rank); 0 without values. */
uint64_t histogram_quantile(const struct histogram *histogram, double quantile)
{
    double exact_rank = quantile * (double)histogram->count;
    uint64_t rank = (uint64_t)exact_rank, seen = 0;

    rank += (double)rank < exact_rank;
    if (histogram->count == 0)
        return 0;
    if (rank == 0)
        rank = 1;
    if (histogram->exact) {
        uint64_t values[HISTOGRAM_EXACT];
        memcpy(values, histogram->exact, histogram->count * sizeof(*values));
        qsort(values, histogram->count, sizeof(*values), compare);
        return values[rank - 1];
    }
    for (int octave = 0; octave < HISTOGRAM_OCTAVES; octave++) {
        for (uint64_t sub = 0; histogram->octaves[octave] && sub < SUBS; sub++) {
            seen += histogram->octaves[octave][sub];
            if (seen >= rank)
                return middle(octave, sub);
        }
    }
    return 0;
}

void histogram_deinit(struct histogram *histogram)
{
    for (int octave = 0; histogram->octaves && octave < HISTOGRAM_OCTAVES; octave++)
        free(histogram->octaves[octave]);
    free(histogram->octaves);
    free(histogram->exact);
    *histogram = (struct histogram){0};
}
