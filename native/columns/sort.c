/* From the order of exits to the order of starts. */
#include "columns.h"

#include <stdlib.h>
#include <string.h>

#include <shadowgraph/records.h>

#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)

static int bits_of(uint64_t value)
{
    return value ? 64 - __builtin_clzll(value) : 0;
}

/* One pass of a least-significant-digit radix sort; stable. */
static void sort_by_digit(const uint64_t *from, uint64_t *to, int64_t count, int shift)
{
    uint32_t places[DIGITS] = {0};
    uint32_t place = 0;

    for (int64_t at = 0; at < count; at++)
        places[(from[at] >> shift) & (DIGITS - 1)]++;
    for (int digit = 0; digit < DIGITS; digit++) {
        uint32_t size = places[digit];
        places[digit] = place;
        place += size;
    }
    for (int64_t at = 0; at < count; at++)
        to[places[(from[at] >> shift) & (DIGITS - 1)]++] = from[at];
}

static int compare_keys(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;

    if (a[0] != b[0])
        return a[0] < b[0] ? -1 : 1;
    return a[1] < b[1] ? -1 : a[1] > b[1];
}

/* The slow way, for a block that lasts hours: key and index do not fit into one word. */
static bool sort_wide(const struct sg_call *calls, int64_t count, int64_t first, uint32_t *order)
{
    uint64_t *pairs = malloc((size_t)count * 2 * sizeof(*pairs));

    if (!pairs)
        return false;
    for (int64_t at = 0; at < count; at++) {
        pairs[2 * at] = (uint64_t)(calls[at].start - first);
        pairs[2 * at + 1] = (uint64_t)at;
    }
    qsort(pairs, (size_t)count, 2 * sizeof(*pairs), compare_keys);
    for (int64_t at = 0; at < count; at++)
        order[at] = (uint32_t)pairs[2 * at + 1];
    free(pairs);
    return true;
}

static void sort_narrow(const struct sg_call *calls, int64_t count, int64_t first, int key_bits, int index_bits,
                        uint64_t *keys, uint64_t *scratch, uint32_t *order)
{
    uint64_t *from = keys, *to = scratch;

    for (int64_t at = 0; at < count; at++)
        keys[at] = (uint64_t)(calls[at].start - first) << index_bits | (uint64_t)at;
    for (int shift = index_bits; shift < index_bits + key_bits; shift += DIGIT_BITS) {
        uint64_t *other = from;
        sort_by_digit(from, to, count, shift);
        from = to;
        to = other;
    }
    for (int64_t at = 0; at < count; at++)
        order[at] = (uint32_t)(from[at] & ((UINT64_C(1) << index_bits) - 1));
}

/* Any order of calls; false where memory ran out. */
static bool sort_by_start(const struct sg_call *calls, int64_t count, uint64_t *keys, uint64_t *scratch,
                          uint32_t *order)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    int key_bits, index_bits;

    for (int64_t at = 0; at < count; at++) {
        if (calls[at].start < first)
            first = calls[at].start;
        if (calls[at].start > last)
            last = calls[at].start;
    }
    key_bits = bits_of((uint64_t)(last - first));
    index_bits = bits_of((uint64_t)count);
    if (key_bits + index_bits > 64)
        return sort_wide(calls, count, first, order);
    sort_narrow(calls, count, first, key_bits, index_bits, keys, scratch, order);
    return true;
}

/*
 * Among calls that start in the same tick the outer one comes first. A call that was seen in flight and has returned
 * since is there twice: the one that says open goes. Returns how many are left.
 */
static int64_t settle_ties(const struct sg_call *calls, int64_t count, uint32_t *order)
{
    int64_t kept = 0;

    for (int64_t at = 0; at < count; at++) {
        const struct sg_call *call = &calls[order[at]];
        uint32_t index = order[at];
        int64_t place = kept;
        bool twice = false;

        while (place > 0 && calls[order[place - 1]].start == call->start) {
            const struct sg_call *other = &calls[order[place - 1]];
            if (other->depth < call->depth)
                break;
            if (other->depth == call->depth) {
                twice = other->function == call->function && (other->kind == SG_KIND_OPEN || call->kind == SG_KIND_OPEN);
                break;
            }
            place--;
        }
        if (twice) {
            if (calls[order[place - 1]].kind == SG_KIND_OPEN)
                order[place - 1] = index;
            continue;
        }
        memmove(&order[place + 1], &order[place], (size_t)(kept - place) * sizeof(*order));
        order[place] = index;
        kept++;
    }
    return kept;
}

/*
 * From exits to starts for calls that nest: read backwards, callers come before the calls they made, and a stack turns
 * the order of each caller's calls around. Writes order from its end; false where the calls do not nest. *ties says
 * whether any two start in the same tick.
 */
static bool sort_nested(const struct sg_call *calls, int64_t count, uint32_t *stack, uint32_t *order, bool *ties)
{
    int64_t height = 0, place = count, last = INT64_MAX;

    for (int64_t at = count - 1; at >= -1; at--) {
        int64_t start = at >= 0 ? calls[at].start : INT64_MIN;

        while (height > 0 && calls[stack[height - 1]].start > start) {
            int64_t begin = calls[stack[--height]].start;
            if (begin > last)
                return false;
            *ties |= begin == last;
            last = begin;
            order[--place] = stack[height];
        }
        if (at >= 0)
            stack[height++] = (uint32_t)at;
    }
    return true;
}

/* Merge the calls from sorted on, in order among themselves, into the order of those before. */
static void merge_others(const struct sg_call *calls, int64_t sorted, int64_t count, uint32_t *order)
{
    int64_t own = sorted - 1, other = count - 1;

    for (int64_t place = count - 1; other >= sorted; place--) {
        if (own >= 0 && calls[order[own]].start > calls[other].start)
            order[place] = order[own--];
        else
            order[place] = (uint32_t)other--;
    }
}

/*
 * The indexes of calls in order of start, then depth. The last others of them are in this order already, the rest is
 * in the order of exits. keys and scratch have room for count. Returns how many indexes were written to order, or -1
 * where memory ran out.
 */
int64_t sg_sort(const struct sg_call *calls, int64_t count, int64_t others, uint64_t *keys, uint64_t *scratch,
                uint32_t *order)
{
    bool ties = others > 0;

    if (sort_nested(calls, count - others, (uint32_t *)keys, order, &ties)) {
        merge_others(calls, count - others, count, order);
        return ties ? settle_ties(calls, count, order) : count;
    }
    if (!sort_by_start(calls, count, keys, scratch, order))
        return -1;
    return settle_ties(calls, count, order);
}
