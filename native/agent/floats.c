/*
 * Adding a floating-point value to the cells of a histogram or of totals (users.h). What is no finite number is counted apart. A
 * value is looked at by its bits; the sum alone is made in a vector register, which is put back.
 */
#include "doubles.h"
#include "measuring.h"

#define USUAL_MXCSR 0x1f80 /* nothing traps, rounded to the nearest: Intel SDM volume 1, 10.2.3 */

/* The program's mxcsr may trap, and remembers what was inexact: it does not see this addition. */
static uint64_t sum_of(uint64_t one, uint64_t other)
{
    uint64_t saved[2];
    uint32_t state, usual = USUAL_MXCSR;
    __asm__ volatile("stmxcsr %[state]\n\t"
                     "ldmxcsr %[usual]\n\t"
                     "movups %%xmm0, %[saved]\n\t"
                     "movq %[one], %%xmm0\n\t"
                     "addsd %[other], %%xmm0\n\t"
                     "movq %%xmm0, %[one]\n\t"
                     "movups %[saved], %%xmm0\n\t"
                     "ldmxcsr %[state]"
                     : [one] "+r"(one), [saved] "=m"(saved), [state] "=m"(state)
                     : [other] "m"(other), [usual] "m"(usual));
    return one;
}

/* A signal handler's call may add to it meanwhile. */
static void add_to_sum(uint64_t *cell, uint64_t value)
{
    uint64_t known;
    do
        known = *(volatile uint64_t *)cell;
    while (!sg_swap_own(cell, known, sum_of(known, value)));
}

/* Numbers in the order of the doubles, above 0. */
static uint64_t order_of(uint64_t bits)
{
    return bits & SG_SIGN_BIT ? ~bits : bits | SG_SIGN_BIT;
}

/* Of values below 0 as of those above, with the ends of buckets turned round, too: -8 is the last of those from -9. */
static uint32_t float_bucket_of(uint64_t bits)
{
    uint64_t negative = bits >> 63, size = (bits & ~SG_SIGN_BIT) - negative;
    int64_t at = (int64_t)(size >> (52 - SG_BUCKET_BITS)) - (SG_FLOAT_EXPONENT << SG_BUCKET_BITS);
    at = at < 0 ? 0 : at >= SG_FLOAT_BUCKETS ? SG_FLOAT_BUCKETS - 1 : at;
    return (uint32_t)(negative ? at + SG_FLOAT_BUCKETS : at);
}

static uint32_t odd_cell_of(uint64_t bits)
{
    return sg_is_nan(bits) ? SG_CELL_NAN : bits & SG_SIGN_BIT ? SG_CELL_MINUS_INFINITY : SG_CELL_INFINITY;
}

/* `first`: the number of the user's first cell for the function. 0 if there is no room. */
int sg_add_float(struct sg_thread *thread, uint64_t first, uint64_t bits, int with_bucket)
{
    uint64_t *cells = sg_cell(thread, first), *bucket = 0, size = bits & ~SG_SIGN_BIT;
    if (!cells)
        return 0;
    if (size >= SG_INFINITY_BITS) {
        SG_ADD_TO(cells + odd_cell_of(bits), 1);
        return 1;
    }
    bits = size ? bits : 0; /* -0 is 0 */
    if (size && with_bucket && !(bucket = sg_cell(thread, first + SG_PAGE_CELLS + float_bucket_of(bits))))
        return 0;
    if (size)
        add_to_sum(cells + SG_CELL_SUM, bits);
    sg_add_maximum(cells + SG_CELL_MAXIMUM, order_of(bits));
    if (bucket)
        SG_ADD_TO(bucket, 1);
    if (!size)
        SG_ADD_TO(cells + SG_CELL_ZEROS, 1);
    SG_ADD_TO(cells + SG_CELL_COUNT, 1);
    return 1;
}
