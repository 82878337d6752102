/* From raw records, in the order of exits, to calls. */
#include "columns.h"

#include <shadowgraph/records.h>

#define MASK(bits) ((UINT64_C(1) << (bits)) - 1)

/*
 * Starts are known modulo 2^48 ticks, exits (start + duration) of one thread grow. So the next exit is the first time
 * after the last one that has the right low bits. Exits may step back by little: a signal handler's calls can be
 * written before the call it interrupted. STEP_BACK is how far that is believed (six minutes at 3 GHz); the rest of the
 * 26 hours is forward.
 */
#define STEP_BACK (INT64_C(1) << 40)

static int64_t unwrap(uint64_t exit_low, int64_t last_exit)
{
    uint64_t step = (exit_low - (uint64_t)last_exit + (uint64_t)STEP_BACK) & MASK(SG_START_BITS);
    return last_exit + (int64_t)step - STEP_BACK;
}

/* More than any call can bring along: a larger number is damage, not a reason to wait for the next block. */
#define VALUE_SLOTS_LIMIT 4096

/* Half a century at 3 GHz: what is longer is damage. */
#define LONGEST_DURATION (UINT64_C(1) << 62)

/* What escapes have said about the record that is to come. */
struct pending {
    bool any, has_duration;
    uint8_t kind;
    uint64_t duration;
    uint32_t values, value_slots;
};

static void finish_call(struct sg_decoder *decoder, struct sg_call *call, uint64_t place, uint64_t what,
                        const struct pending *pending)
{
    uint64_t duration = pending->has_duration ? pending->duration : what >> SG_FUNCTION_BITS;
    uint64_t exit_low = ((place & MASK(SG_START_BITS)) + duration) & MASK(SG_START_BITS);
    int64_t exit = unwrap(exit_low, decoder->last_exit);

    if (exit > decoder->last_exit)
        decoder->last_exit = exit;
    call->start = exit - (int64_t)duration;
    call->duration = (int64_t)duration;
    call->function = (uint32_t)(what & MASK(SG_FUNCTION_BITS));
    call->depth = (uint16_t)((place - (uint64_t)call->start) >> SG_START_BITS);
    call->kind = pending->kind;
    call->unused = 0;
    call->values = pending->values;
    call->value_slots = pending->value_slots;
}

/*
 * Decode count slots of 16 bytes of one thread; calls has room for count. Returns how many calls there were; *consumed
 * says how many slots are done with: an escape whose record is not here yet is left for the next block, in which the
 * rest must stand first, unless this is the final block.
 */
int64_t sg_decode(const uint64_t *slots, int64_t count, int32_t final, struct sg_decoder *decoder,
                  struct sg_call *calls, int64_t *consumed)
{
    struct pending pending = {0};
    const struct pending none = {0};
    int64_t found = 0, done = 0;

    for (int64_t at = 0; at < count; at++) {
        uint64_t place = slots[2 * at], what = slots[2 * at + 1];
        uint32_t function = (uint32_t)(what & MASK(SG_FUNCTION_BITS));
        uint64_t parameter = what >> SG_FUNCTION_BITS;

        if (function < SG_ESCAPE_FIRST) {
            if (function != SG_FUNCTION_NONE) {
                finish_call(decoder, &calls[found++], place, what, &pending);
            } else if (place == 0 && what == 0) {
                decoder->unwritten++;
                decoder->damaged += pending.any;
            } else {
                decoder->nobody++;
            }
            if (pending.any)
                pending = none;
            done = at + 1;
            continue;
        }
        if (function == SG_ESCAPE_LONG && place < LONGEST_DURATION) {
            pending.has_duration = true;
            pending.duration = place;
        } else if (function == SG_ESCAPE_KIND) {
            pending.kind = (uint8_t)parameter;
        } else if (function == SG_ESCAPE_VALUES && parameter < VALUE_SLOTS_LIMIT) {
            if ((int64_t)parameter >= count - at)
                break; /* the values or their record lie beyond this block */
            pending.values = (uint32_t)at + 2;
            pending.value_slots = (uint32_t)parameter;
            at += (int64_t)parameter;
        } else {
            decoder->damaged++;
            continue;
        }
        pending.any = true;
    }
    if (final && done < count) {
        decoder->damaged++;
        done = count;
    }
    *consumed = done;
    return found;
}

/* Take the calls that start before limit out of calls (kept in order) and into earlier, which may be NULL. */
int64_t sg_split(struct sg_call *calls, int64_t count, int64_t limit, struct sg_call *earlier, int64_t *earlier_count)
{
    int64_t kept = 0, moved = 0;

    for (int64_t at = 0; at < count; at++) {
        if (calls[at].start >= limit) {
            if (kept != at)
                calls[kept] = calls[at];
            kept++;
        } else {
            if (earlier)
                earlier[moved] = calls[at];
            moved++;
        }
    }
    *earlier_count = moved;
    return kept;
}
