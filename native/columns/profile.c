/* Which functions (or modules, threads, processes) took the time: one pass over calls in the order of thread and start. */
#include "columns.h"
#include "histogram.h"
#include "nesting.h"

#include <shadowgraph/records.h>

/* What each call touches: one cache line. The rest is in struct rare. */
struct entry {
    int64_t calls, total, self, sum, minimum, maximum;
    int64_t busy_until; /* end of the time in which this key is in flight already, in this thread */
    struct histogram *histogram;
};

struct rare {
    int64_t open, unwound;
};

struct sg_profile {
    struct nest nest;
    struct entry *entries;
    struct rare *rare;
    struct histogram *histograms;
    uint32_t *busy; /* keys with a busy_until in the present thread */
    uint32_t busy_count;
    uint32_t keys;
    uint32_t thread; /* the present one, plus one; 0: none yet */
};

/* A profile of keys rows, or NULL where memory ran out. */
struct sg_profile *sg_profile_create(uint32_t keys)
{
    struct sg_profile *profile = calloc(1, sizeof(*profile));
    size_t count = keys ? keys : 1;

    if (!profile)
        return NULL;
    profile->keys = keys;
    profile->entries = aligned_alloc(64, count * sizeof(*profile->entries));
    profile->rare = calloc(count, sizeof(*profile->rare));
    profile->histograms = calloc(count, sizeof(*profile->histograms));
    profile->busy = calloc(count, sizeof(*profile->busy));
    if (!profile->entries || !profile->rare || !profile->histograms || !profile->busy || !nest_init(&profile->nest)) {
        sg_profile_destroy(profile);
        return NULL;
    }
    for (uint32_t key = 0; key < keys; key++) {
        profile->entries[key] = (struct entry){
            .minimum = INT64_MAX, .busy_until = INT64_MIN, .histogram = &profile->histograms[key]};
    }
    return profile;
}

void sg_profile_destroy(struct sg_profile *profile)
{
    for (uint32_t key = 0; profile->histograms && key < profile->keys; key++)
        histogram_deinit(&profile->histograms[key]);
    free(profile->histograms);
    free(profile->entries);
    free(profile->rare);
    free(profile->busy);
    nest_deinit(&profile->nest);
    free(profile);
}

/* Another thread begins: nothing is in flight in it. */
static void enter_thread(struct sg_profile *profile, uint32_t thread)
{
    nest_clear(&profile->nest);
    profile->thread = thread + 1;
    for (uint32_t at = 0; at < profile->busy_count; at++)
        profile->entries[profile->busy[at]].busy_until = INT64_MIN;
    profile->busy_count = 0;
}

/*
 * Time in which the key is in flight counts once, however many calls of it are nested or overlap. Without branches on
 * that: whether a call is recursive is hard to predict.
 */
static void add_total(struct sg_profile *profile, struct entry *entry, int64_t start, int64_t end)
{
    int64_t busy = entry->busy_until, from = start > busy ? start : busy, until = end > busy ? end : busy;

    if (busy == INT64_MIN)
        profile->busy[profile->busy_count++] = (uint32_t)(entry - profile->entries);
    entry->total += until - from;
    entry->busy_until = until;
}

/* Which row each call belongs to: by its function or by its thread. */
struct keys {
    const uint32_t *of_function, *of_thread;
    uint32_t functions, threads;
};

static uint32_t key_of(const struct keys *keys, const struct sg_batch *batch, int64_t at)
{
    if (keys->of_function)
        return keys->of_function[batch->function[at] < keys->functions ? batch->function[at] : keys->functions - 1];
    return keys->of_thread[batch->thread[at] < keys->threads ? batch->thread[at] : keys->threads - 1];
}

/* Memory takes longer than a call's share of this loop: ask for what the calls further on will touch. */
static void look_ahead(const struct sg_profile *profile, const struct sg_batch *batch, const struct keys *keys,
                       int64_t at)
{
    if (at + 24 < batch->count)
        __builtin_prefetch(&profile->entries[key_of(keys, batch, at + 24)], 1);
    if (at + 16 < batch->count)
        histogram_prefetch_octave(profile->entries[key_of(keys, batch, at + 16)].histogram,
                                  (uint64_t)batch->duration[at + 16]);
    if (at + 8 < batch->count) {
        const struct histogram *histogram = profile->entries[key_of(keys, batch, at + 8)].histogram;
        histogram_prefetch(histogram, (uint64_t)batch->duration[at + 8]);
    }
}

/*
 * Take in count calls. key_of_function (functions entries, the last one for all ids beyond) or, if that is NULL,
 * key_of_thread (threads entries, likewise) says which row a call belongs to. False where memory ran out.
 */
int32_t sg_profile_feed(struct sg_profile *profile, const struct sg_batch *batch, const uint32_t *key_of_function,
                        uint32_t functions, const uint32_t *key_of_thread, uint32_t threads)
{
    const struct keys keys = {key_of_function, key_of_thread, functions, threads};
    struct nest *nest = &profile->nest;

    for (int64_t at = 0; at < batch->count; at++) {
        uint32_t key = key_of(&keys, batch, at), caller;
        struct entry *entry = &profile->entries[key];
        int64_t start = batch->start[at], duration = batch->duration[at] > 0 ? batch->duration[at] : 0;
        int64_t end = start + duration;

        look_ahead(profile, batch, &keys, at);
        if (batch->thread[at] + 1 != profile->thread)
            enter_thread(profile, batch->thread[at]);
        add_total(profile, entry, start, end);
        entry->calls++;
        entry->sum += duration;
        entry->self += duration;
        entry->minimum = duration < entry->minimum ? duration : entry->minimum;
        entry->maximum = duration > entry->maximum ? duration : entry->maximum;
        if (batch->kind[at] != SG_KIND_RETURNED) {
            profile->rare[key].open += batch->kind[at] == SG_KIND_OPEN;
            profile->rare[key].unwound += batch->kind[at] == SG_KIND_UNWOUND;
        }
        if (!histogram_add(entry->histogram, (uint64_t)duration))
            return false;
        caller = nest_caller(nest, start, end, batch->depth[at]);
        if (caller) {
            int64_t limit = nest->calls[caller].end;
            profile->entries[nest->calls[caller].label].self -= (end < limit ? end : limit) - start;
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

        rows[key] = (struct sg_profile_row){
            entry->calls, entry->total, entry->self, entry->sum, entry->calls ? entry->minimum : 0, entry->maximum,
            profile->rare[key].open, profile->rare[key].unwound,
        };
        for (int32_t at = 0; at < count; at++) {
            int64_t value = (int64_t)histogram_quantile(entry->histogram, quantiles[at]);
            if (value < rows[key].minimum)
                value = rows[key].minimum;
            if (value > rows[key].maximum)
                value = rows[key].maximum;
            values[(int64_t)key * count + at] = value;
        }
    }
}
