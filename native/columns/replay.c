/*
 * The function graph in the order of time: the entries and exits of all threads, merged. Each thread is a cursor over
 * its calls in the order of starts; its exits come from the calls it has in flight. Only what is in flight, and the
 * batch a cursor stands in, is in memory.
 */
#define _POSIX_C_SOURCE 200809L /* strdup */

#include "replay.h"

#include <stdlib.h>
#include <string.h>

#include <shadowgraph/records.h>

struct cursor {
    struct sg_batch batch;
    struct sg_texts texts;
    int64_t at;               /* next row of the batch */
    bool finished;            /* there will be no more batches, or none that matters */
    bool has_current, has_next, has_tree;
    struct replay_call tree;    /* the last call of a chosen function that was below none */
    struct replay_call current; /* the next call to enter */
    struct replay_call next;    /* the one after it: tells whether current is a leaf */
    struct replay_call *open;   /* calls in flight, the one that ends first is last */
    int32_t open_count, open_capacity;
    int64_t event; /* time of the next event */
    char *label;   /* of a line, "  1234) " */
    char *name;    /* "worker-1234" */
    char *kept[4]; /* texts of current and next that outlive the batch they came from */
};

struct sg_replay {
    struct sg_replay_names names;
    struct sg_replay_options options;
    struct cursor *cursors;
    int32_t *heap; /* cursors by the time of their next event */
    int32_t heap_count, cursor_count;
    int32_t last; /* cursor of the line before, -1: none yet */
};

enum { DONE = 0, NEEDS_BATCH = 1, BUFFER_FULL = 2, NO_MEMORY = 3 };

struct sg_replay *sg_replay_create(const struct sg_replay_names *names, const struct sg_replay_options *options,
                                   int32_t cursors)
{
    struct sg_replay *replay = calloc(1, sizeof(*replay));

    if (!replay)
        return NULL;
    replay->names = *names;
    replay->options = *options;
    replay->last = -1;
    replay->cursors = calloc((size_t)cursors + 1, sizeof(*replay->cursors));
    replay->heap = calloc((size_t)cursors + 1, sizeof(*replay->heap));
    if (!replay->cursors || !replay->heap) {
        sg_replay_destroy(replay);
        return NULL;
    }
    replay->cursor_count = cursors;
    return replay;
}

static void cursor_deinit(struct cursor *cursor)
{
    for (int32_t at = 0; at < cursor->open_count; at++)
        free((void *)cursor->open[at].result.data);
    free(cursor->open);
    for (int at = 0; at < 4; at++)
        free(cursor->kept[at]);
    free(cursor->label);
    free(cursor->name);
    *cursor = (struct cursor){.finished = true};
}

void sg_replay_destroy(struct sg_replay *replay)
{
    for (int32_t at = 0; replay->cursors && at < replay->cursor_count; at++)
        cursor_deinit(&replay->cursors[at]);
    free(replay->cursors);
    free(replay->heap);
    free(replay);
}

/* --- the heap of cursors --- */

static bool earlier(const struct sg_replay *replay, int32_t left, int32_t right)
{
    const struct cursor *a = &replay->cursors[left], *b = &replay->cursors[right];

    return a->event != b->event ? a->event < b->event : left < right;
}

static void sift_down(struct sg_replay *replay, int32_t at)
{
    int32_t moving = replay->heap[at];

    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= replay->heap_count)
            break;
        if (child + 1 < replay->heap_count && earlier(replay, replay->heap[child + 1], replay->heap[child]))
            child++;
        if (!earlier(replay, replay->heap[child], moving))
            break;
        replay->heap[at] = replay->heap[child];
        at = child;
    }
    replay->heap[at] = moving;
}

static void remove_first(struct sg_replay *replay)
{
    replay->heap[0] = replay->heap[--replay->heap_count];
    if (replay->heap_count)
        sift_down(replay, 0);
}

/* The earliest event of all cursors but the first of the heap. */
static int64_t second_event(const struct sg_replay *replay)
{
    int64_t second = INT64_MAX;

    for (int32_t at = 1; at < 3 && at < replay->heap_count; at++) {
        int64_t event = replay->cursors[replay->heap[at]].event;
        if (event < second)
            second = event;
    }
    return second;
}

/* Add the cursor of a thread whose first call starts at this time. To be called in the order of cursors. */
int32_t sg_replay_add(struct sg_replay *replay, int32_t cursor, int64_t first_start, const char *label,
                      const char *name)
{
    struct cursor *added = &replay->cursors[cursor];
    int32_t at = replay->heap_count++;

    added->event = first_start;
    added->label = strdup(label);
    added->name = strdup(name);
    while (at > 0 && earlier(replay, cursor, replay->heap[(at - 1) / 2])) {
        replay->heap[at] = replay->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    replay->heap[at] = cursor;
    return added->label && added->name;
}

/* --- one cursor --- */

static struct text text_at(const int32_t *offsets, const char *data, const uint8_t *valid, int64_t row)
{
    if (!offsets || (valid && !(valid[row / 8] >> row % 8 & 1)))
        return (struct text){NULL, -1};
    return (struct text){data + offsets[row], offsets[row + 1] - offsets[row]};
}

/* Whether a call begins before another one ends. Calls of no length belong to the outer one they begin with. */
static bool begins_within(const struct replay_call *call, const struct replay_call *outer)
{
    if (call->start != outer->end)
        return call->start < outer->end;
    return call->end == call->start && call->depth > outer->depth;
}

/* Whether a call is one of a chosen function, or below one; its depth is counted from that on. */
static bool is_chosen(struct cursor *cursor, const struct sg_replay_options *options, struct replay_call *call)
{
    bool below = cursor->has_tree && call->depth > cursor->tree.depth && begins_within(call, &cursor->tree);

    if (!below && (call->function >= options->functions || !options->chosen[call->function]))
        return false;
    if (!below)
        cursor->tree = *call;
    cursor->has_tree = true;
    call->depth = (uint16_t)(call->depth - cursor->tree.depth);
    return call->depth < options->depth;
}

/* The next call of the batch that is to be shown, into next; false where the batch has no more. */
static bool load_next(struct cursor *cursor, const struct sg_replay_options *options)
{
    const struct sg_batch *batch = &cursor->batch;
    const struct sg_texts *texts = &cursor->texts;

    for (; cursor->at < batch->count; cursor->at++) {
        int64_t row = cursor->at, start = batch->start[row], duration = batch->duration[row];
        int64_t end = start + (duration > 0 ? duration : 0);

        if ((!options->chosen && batch->depth[row] >= options->depth) || end < options->from)
            continue;
        if (start >= options->to) {
            cursor->finished = true;
            cursor->at = batch->count;
            return false;
        }
        cursor->next = (struct replay_call){
            .start = start,
            .end = end,
            .function = batch->function[row],
            .depth = batch->depth[row],
            .kind = batch->kind[row],
            .arguments = text_at(texts->argument_offsets, texts->argument_data, texts->argument_valid,
                                 texts->argument_row + row),
            .result = text_at(texts->result_offsets, texts->result_data, texts->result_valid, texts->result_row + row),
        };
        if (options->chosen && !is_chosen(cursor, options, &cursor->next))
            continue;
        cursor->at++;
        return true;
    }
    return false;
}

/* Have current and next, as far as there are any; false where a batch is needed for that. */
static bool look_ahead(struct cursor *cursor, const struct sg_replay_options *options)
{
    while (!cursor->has_current || !cursor->has_next) {
        if (!cursor->has_current && cursor->has_next) {
            cursor->current = cursor->next;
            cursor->has_current = true;
            cursor->has_next = false;
        }
        if (!cursor->has_next && !load_next(cursor, options))
            return cursor->finished;
        cursor->has_next = true;
    }
    return true;
}

static const struct replay_call *first_to_end(const struct cursor *cursor)
{
    return cursor->open_count ? &cursor->open[cursor->open_count - 1] : NULL;
}

static bool next_is_entry(const struct cursor *cursor)
{
    const struct replay_call *open = first_to_end(cursor);

    return cursor->has_current && (!open || begins_within(&cursor->current, open));
}

static bool is_leaf(const struct cursor *cursor)
{
    const struct replay_call *open = first_to_end(cursor);

    if (cursor->has_next && begins_within(&cursor->next, &cursor->current))
        return false;
    return !open || open->end >= cursor->current.end;
}

/* Put a call among those in flight, which are in the order in which they end. */
static bool push_open(struct cursor *cursor, const struct replay_call *call)
{
    int32_t place;
    char *copy = NULL;

    if (cursor->open_count == cursor->open_capacity) {
        int32_t capacity = cursor->open_capacity ? 2 * cursor->open_capacity : 64;
        struct replay_call *grown = realloc(cursor->open, (size_t)capacity * sizeof(*grown));
        if (!grown)
            return false;
        cursor->open = grown;
        cursor->open_capacity = capacity;
    }
    if (call->result.length >= 0) {
        copy = malloc((size_t)call->result.length + 1);
        if (!copy)
            return false;
        memcpy(copy, call->result.data, (size_t)call->result.length);
    }
    for (place = cursor->open_count; place > 0 && cursor->open[place - 1].end < call->end; place--)
        cursor->open[place] = cursor->open[place - 1];
    cursor->open[place] = *call;
    cursor->open[place].arguments.length = -1;
    cursor->open[place].result.data = copy;
    cursor->open_count++;
    return true;
}

/* The time of the cursor's next event; false if there will be none. */
static bool set_event(struct cursor *cursor)
{
    if (next_is_entry(cursor))
        cursor->event = cursor->current.start;
    else if (cursor->open_count)
        cursor->event = first_to_end(cursor)->end;
    else
        return false;
    return true;
}

/* --- the merge --- */

static bool in_window(const struct sg_replay *replay, int64_t time)
{
    return time >= replay->options.from && time < replay->options.to;
}

static void note_switch(struct sg_replay *replay, int32_t cursor, struct lines *lines)
{
    if (replay->last != cursor && replay->last >= 0 && replay->options.switches)
        write_switch(lines, replay->cursors[replay->last].name, replay->cursors[cursor].name);
    replay->last = cursor;
}

/* Write what happens next in a thread. There is room for it. */
static bool do_event(struct sg_replay *replay, int32_t number, struct lines *lines)
{
    struct cursor *cursor = &replay->cursors[number];

    if (next_is_entry(cursor)) {
        struct replay_call *call = &cursor->current;
        bool leaf = is_leaf(cursor), shown = in_window(replay, call->start);

        if (shown) {
            note_switch(replay, number, lines);
            (leaf ? write_leaf : write_entry)(lines, &replay->names, cursor->label, call);
        }
        if (!(leaf && shown) && !push_open(cursor, call))
            return false;
        cursor->has_current = false;
        return true;
    }
    cursor->open_count--;
    if (in_window(replay, cursor->open[cursor->open_count].end)) {
        note_switch(replay, number, lines);
        write_exit(lines, &replay->names, cursor->label, &cursor->open[cursor->open_count]);
    }
    free((void *)cursor->open[cursor->open_count].result.data);
    return true;
}

/*
 * Write lines into the buffer. Returns DONE; NEEDS_BATCH, and *cursor says whose next batch is to be given to
 * sg_replay_feed; BUFFER_FULL; or NO_MEMORY. *written says how many bytes there are in the buffer, whatever is returned.
 */
int32_t sg_replay_run(struct sg_replay *replay, char *buffer, int64_t size, int64_t *written, int32_t *cursor)
{
    struct lines lines = {buffer, buffer + size, replay->options.timestamps};
    int32_t status = DONE;

    while (replay->heap_count) {
        int32_t number = replay->heap[0];
        struct cursor *first = &replay->cursors[number];
        int64_t limit = second_event(replay);
        bool goes_on = true;

        do {
            const struct replay_call *call;
            if (!look_ahead(first, &replay->options)) {
                *cursor = number;
                status = NEEDS_BATCH;
                break;
            }
            goes_on = set_event(first);
            if (!goes_on || first->event > limit)
                break;
            call = next_is_entry(first) ? &first->current : first_to_end(first);
            if (!lines_have_room(&lines, &replay->names, call)) {
                status = BUFFER_FULL;
                break;
            }
            if (!do_event(replay, number, &lines)) {
                status = NO_MEMORY;
                break;
            }
        } while (true);
        if (status != DONE)
            break;
        if (goes_on)
            sift_down(replay, 0);
        else
            remove_first(replay);
    }
    *written = lines.at - buffer;
    return status;
}

static bool keep_text(struct text *text, char **copy)
{
    *copy = NULL;
    if (text->length <= 0)
        return true;
    *copy = malloc((size_t)text->length);
    if (!*copy)
        return false;
    memcpy(*copy, text->data, (size_t)text->length);
    text->data = *copy;
    return true;
}

/* Copy the texts of current and next, for their batch goes away. */
static bool keep_texts(struct cursor *cursor)
{
    char *kept[4] = {NULL, NULL, NULL, NULL};
    bool fine = true;

    if (cursor->has_current)
        fine = keep_text(&cursor->current.arguments, &kept[0]) && keep_text(&cursor->current.result, &kept[1]);
    if (cursor->has_next)
        fine = fine && keep_text(&cursor->next.arguments, &kept[2]) && keep_text(&cursor->next.result, &kept[3]);
    for (int at = 0; at < 4; at++) {
        free(cursor->kept[at]);
        cursor->kept[at] = kept[at];
    }
    return fine;
}

/*
 * Give a cursor its next batch, which must stay in memory until the cursor asks for another; an empty one is the last.
 * The batch before may go. False where memory ran out.
 */
int32_t sg_replay_feed(struct sg_replay *replay, int32_t cursor, const struct sg_batch *batch,
                       const struct sg_texts *texts)
{
    struct cursor *fed = &replay->cursors[cursor];
    bool kept = keep_texts(fed);

    fed->batch = *batch;
    fed->texts = *texts;
    fed->at = 0;
    fed->finished = fed->finished || batch->count == 0;
    return kept;
}
