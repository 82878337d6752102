/* From sorted calls to the columns of a trace. */
#include "columns.h"

__extension__ typedef __int128 wide;

/* Rounded down: a monotone function of the tick, so that what nests in ticks nests in nanoseconds. */
static int64_t nanoseconds(const struct sg_clock *clock, int64_t tick)
{
    return (int64_t)(((wide)(tick - clock->origin) * clock->multiplier) >> SG_CLOCK_SHIFT);
}

/*
 * Write the calls named by order[0..count) to the columns, and count them by function. Returns the last end in
 * nanoseconds, INT64_MIN if there is none.
 */
int64_t sg_emit(const struct sg_call *calls, const uint32_t *order, int64_t count, uint32_t thread,
                const struct sg_clock *clock, const struct sg_columns *columns, int64_t *calls_of_function)
{
    int64_t last_end = INT64_MIN;

    for (int64_t at = 0; at < count; at++) {
        const struct sg_call *call = &calls[order[at]];
        int64_t start = nanoseconds(clock, call->start);
        int64_t end = nanoseconds(clock, call->start + call->duration);

        columns->thread[at] = thread;
        columns->function[at] = call->function;
        columns->start[at] = start;
        columns->duration[at] = end - start;
        columns->depth[at] = call->depth;
        columns->kind[at] = call->kind;
        calls_of_function[call->function]++;
        if (end > last_end)
            last_end = end;
    }
    return last_end;
}
