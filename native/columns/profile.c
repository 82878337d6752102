/* Which functions (or modules, threads, processes) took the time: one pass over calls in the order of thread and start. */
#include "columns.h"
#include "histogram.h"
#include "nesting.h"

#include <shadowgraph/records.h>

struct entry {
    struct sg_profile_row row;
    struct histogram histogram;
    int64_t busy_until;   /* end of the time in which this key is in flight already, in this thread */
    uint32_t busy_thread; /* the thread that busy_until speaks of, plus one */
};

struct sg_profile {
    struct nest nest;
    struct entry *entries;
    uint32_t keys;
    uint32_t thread; /* the present one, plus one; 0: none yet */
};

/* A profile of keys rows, or NULL where memory ran out. */
struct sg_profile *sg_profile_create(uint32_t keys)
{
    struct sg_profile *profile = calloc(1, sizeof(*profile));

    if (!profile)
        return NULL;
    profile->keys = keys;
    profile->entries = calloc(keys ? keys : 1, sizeof(*profile->entries));
    if (!profile->entries || !nest_init(&profile->nest)) {
        sg_profile_destroy(profile);
        return NULL;
    }
    return profile;
}

void sg_profile_destroy(struct sg_profile *profile)
{
    for (uint32_t key = 0; profile->entries && key < profile->keys; key++)
        histogram_deinit(&profile->entries[key].histogram);
    free(profile->entries);
    nest_deinit(&profile->nest);
    free(profile);
}

/* Time in which the key is in flight counts once, however many calls of it are nested or overlap. */
static void add_total(struct entry *entry, uint32_t thread, int64_t start, int64_t end)
{
    if (entry->busy_thread != thread) {
        entry->busy_thread = thread;
        entry->busy_until = INT64_MIN;
    }
    if (start >= entry->busy_until) {
        entry->row.total += end - start;
        entry->busy_until = end;
    } else if (end > entry->busy_until) {
        entry->row.total += end - entry->busy_until;
        entry->busy_until = end;
    }
}

static bool add_call(struct entry *entry, uint8_t kind, int64_t duration)
{
    struct sg_profile_row *row = &entry->row;

    if (row->calls == 0 || duration < row->minimum)
        row->minimum = duration;
    if (row->calls == 0 || duration > row->maximum)
        row->maximum = duration;
    row->calls++;
    row->sum += duration;
    row->self += duration;
    row->open += kind == SG_KIND_OPEN;
    row->unwound += kind == SG_KIND_UNWOUND;
    return histogram_add(&entry->histogram, (uint64_t)duration);
}

/*
 * Take in count calls. key_of_function (functions entries, the last one for all ids beyond) or, if that is NULL,
 * key_of_thread (threads entries, likewise) says which row a call belongs to. False where memory ran out.
 */
int32_t sg_profile_feed(struct sg_profile *profile, const struct sg_batch *batch, const uint32_t *key_of_function,
                        uint32_t functions, const uint32_t *key_of_thread, uint32_t threads)
{
    struct nest *nest = &profile->nest;

    for (int64_t at = 0; at < batch->count; at++) {
        uint32_t thread = batch->thread[at], function = batch->function[at], key, caller;
        int64_t start = batch->start[at], duration = batch->duration[at], end;

        if (thread + 1 != profile->thread) {
            nest_clear(nest);
            profile->thread = thread + 1;
        }
        if (duration < 0)
            duration = 0;
        end = start + duration;
        if (key_of_function)
            key = key_of_function[function < functions ? function : functions - 1];
        else
            key = key_of_thread[thread < threads ? thread : threads - 1];
        add_total(&profile->entries[key], profile->thread, start, end);
        if (!add_call(&profile->entries[key], batch->kind[at], duration))
            return false;
        caller = nest_caller(nest, start, end, batch->depth[at]);
        if (caller) {
            int64_t limit = nest->calls[caller].end;
            profile->entries[nest->calls[caller].label].row.self -= (end < limit ? end : limit) - start;
        }
        if (!nest_enter(nest, start, end, batch->depth[at], key))
            return false;
    }
    return true;
}

/* The rows, and count quantiles of each (row after row). */
void sg_profile_finish(const struct sg_profile *profile, struct sg_profile_row *rows, const double *quantiles,
                       int32_t count, int64_t *values)
{
    for (uint32_t key = 0; key < profile->keys; key++) {
        const struct entry *entry = &profile->entries[key];

        rows[key] = entry->row;
        for (int32_t at = 0; at < count; at++) {
            int64_t value = (int64_t)histogram_quantile(&entry->histogram, quantiles[at]);
            if (value < entry->row.minimum)
                value = entry->row.minimum;
            if (value > entry->row.maximum)
                value = entry->row.maximum;
            values[(int64_t)key * count + at] = value;
        }
    }
}
