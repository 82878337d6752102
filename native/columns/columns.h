/*
 * The loops over hundreds of millions of records, as a plain shared library for ctypes: nothing of Python is in here,
 * so that one build serves every Python version. Callers own all memory that is handed in.
 *
 *      gcc -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -Wl,-z,defs -fvisibility=hidden -Inative/include \
 *          -o src/shadowgraph/_native/columns.so native/columns/...c
 *
 * Raw records become calls (decode.c), calls are sorted (sort.c), get the right depths (depths.c) and are written as columns (emit.c, values.c). Columns in
 * order of thread and start are what the analyses read: profile.c, tree.c and replay.c.
 */
#ifndef SHADOWGRAPH_COLUMNS_H
#define SHADOWGRAPH_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SG_EXPORT __attribute__((visibility("default")))

/* A decoded record. Times in ticks since the tick base, not wrapped. */
struct sg_call {
    int64_t start;
    int64_t duration;
    uint32_t function;
    uint16_t depth;
    uint8_t kind;
    uint8_t unused;
    uint32_t values;      /* 1 + the slot (16 bytes) where its captured values begin; 0: it has none */
    uint32_t value_slots; /* how many slots they take */
};

/* What must be kept from one block of a thread's records to the next. */
struct sg_decoder {
    int64_t last_exit; /* ticks; to begin with: the start of the thread, or any time not after its first exit */
    int64_t nobody;    /* records of function 0, skipped */
    int64_t unwritten; /* places that were never written, skipped */
    int64_t damaged;   /* escapes without their record, or of an unknown kind, skipped */
};

/* Ticks to nanoseconds: see trace/clock.py. */
struct sg_clock {
    int64_t origin;
    int64_t multiplier;
};

#define SG_CLOCK_SHIFT 50

/* Columns of a trace under construction, each with room for as many rows as the caller asks to be written. */
struct sg_columns {
    uint32_t *thread;
    uint32_t *function;
    int64_t *start;
    int64_t *duration;
    uint16_t *depth;
    uint8_t *kind;
};

SG_EXPORT int64_t sg_decode(const uint64_t *slots, int64_t count, int32_t final, struct sg_decoder *decoder,
                            struct sg_call *calls, int64_t *consumed);
SG_EXPORT int64_t sg_split(struct sg_call *calls, int64_t count, int64_t limit, struct sg_call *earlier,
                           int64_t *earlier_count);
SG_EXPORT int64_t sg_sort(const struct sg_call *calls, int64_t count, int64_t others, uint64_t *keys,
                          uint64_t *scratch, uint32_t *order);

struct sg_depths;

SG_EXPORT struct sg_depths *sg_depths_create(void);
SG_EXPORT void sg_depths_destroy(struct sg_depths *depths);
SG_EXPORT void sg_depths_clear(struct sg_depths *depths);
SG_EXPORT int32_t sg_depths_close(struct sg_depths *depths, struct sg_call *calls, const uint32_t *order, int64_t count);

SG_EXPORT int64_t sg_emit(const struct sg_call *calls, const uint32_t *order, int64_t count, uint32_t thread,
                          const struct sg_clock *clock, const struct sg_columns *columns, int64_t *calls_of_function);

/* What the values of a function are: see docs/trace-format.md. The numbers are those of trace/values.py. */
#define SG_TYPE_POINTER 0
#define SG_TYPE_I8 1
#define SG_TYPE_I16 2
#define SG_TYPE_I32 3
#define SG_TYPE_I64 4
#define SG_TYPE_U8 5
#define SG_TYPE_U16 6
#define SG_TYPE_U32 7
#define SG_TYPE_U64 8
#define SG_TYPE_F32 9
#define SG_TYPE_F64 10
#define SG_TYPE_BOOL 11
#define SG_TYPE_CHAR 12
#define SG_TYPE_STRING 13
#define SG_SIDE_ENTRY 0
#define SG_SIDE_RETURN 1

struct sg_value_item {
    uint8_t type, side;
    uint16_t name_length;
    uint32_t name; /* offset in the text of names */
};

/* The items of function f are items[first_item[f]] to items[first_item[f + 1]]. */
struct sg_value_specs {
    const uint32_t *first_item;
    const struct sg_value_item *items;
    const char *names;
    uint32_t functions;
};

/* A column of text under construction. */
struct sg_text_column {
    int32_t *offsets; /* one more than rows */
    uint8_t *valid;   /* one byte a row */
    char *data;
    int64_t size; /* of data */
};

SG_EXPORT int64_t sg_format_values(const struct sg_call *calls, const uint32_t *order, int64_t count,
                                   const uint64_t *slots, const struct sg_value_specs *specs,
                                   struct sg_text_column *arguments, struct sg_text_column *results, int64_t row);

/* Some rows of a trace's columns, in the order of thread and start. Times in nanoseconds. */
struct sg_batch {
    int64_t count;
    const uint32_t *thread;
    const uint32_t *function;
    const int64_t *start;
    const int64_t *duration;
    const uint16_t *depth;
    const uint8_t *kind;
};

/* One line of a profile. Times in nanoseconds; sum counts nested calls of the same key each, total counts time once. */
struct sg_profile_row {
    int64_t calls, total, self, sum, minimum, maximum, open, unwound;
};

struct sg_profile;

SG_EXPORT struct sg_profile *sg_profile_create(uint32_t keys);
SG_EXPORT void sg_profile_destroy(struct sg_profile *profile);
SG_EXPORT int32_t sg_profile_feed(struct sg_profile *profile, const struct sg_batch *batch,
                                  const uint32_t *key_of_function, uint32_t functions, const uint32_t *key_of_thread,
                                  uint32_t threads);
SG_EXPORT void sg_profile_finish(const struct sg_profile *profile, struct sg_profile_row *rows,
                                 const double *quantiles, int32_t count, int64_t *values);

/* One node of a call tree. Times in nanoseconds; total is the time in which a call of it, of a root any call of its
 * threads, was in flight, thread by thread. */
struct sg_tree_node {
    int64_t calls, total, self, open, unwound;
    uint32_t parent; /* a root is its own parent */
    uint32_t function;
};

struct sg_tree;

SG_EXPORT struct sg_tree *sg_tree_create(uint32_t roots);
SG_EXPORT void sg_tree_destroy(struct sg_tree *tree);
SG_EXPORT int32_t sg_tree_feed(struct sg_tree *tree, const struct sg_batch *batch, const uint32_t *root_of_thread,
                               uint32_t threads);
SG_EXPORT uint32_t sg_tree_count(const struct sg_tree *tree);
SG_EXPORT void sg_tree_finish(const struct sg_tree *tree, struct sg_tree_node *nodes);

/* What functions are called: text of function f at offsets[f] to offsets[f + 1]; functions entries, the last one for
 * all ids beyond. Places are source lines, empty where they are not known or not wanted. */
struct sg_replay_names {
    const char *text;
    const uint32_t *offsets;
    const char *places;
    const uint32_t *place_offsets;
    uint32_t functions;
};

struct sg_replay_options {
    int64_t from, to;   /* nanoseconds: what happens at from or later, and before to, is shown */
    uint32_t depth;     /* calls of smaller depth are shown */
    int32_t switches;   /* say when another thread goes on */
    int32_t timestamps; /* begin each line with its time */
    const uint8_t *chosen; /* by function: its calls, and those below them, are shown, with depths from there on; NULL: all are */
    uint32_t functions;    /* how many there are; one beyond is not chosen */
};

/* Captured values of a batch as Arrow string columns; offsets are NULL where the trace has none. */
struct sg_texts {
    const int32_t *argument_offsets;
    const char *argument_data;
    const uint8_t *argument_valid;
    int64_t argument_row; /* row of the column that is row 0 of the batch */
    const int32_t *result_offsets;
    const char *result_data;
    const uint8_t *result_valid;
    int64_t result_row;
};

struct sg_replay;

SG_EXPORT struct sg_replay *sg_replay_create(const struct sg_replay_names *names,
                                             const struct sg_replay_options *options, int32_t cursors);
SG_EXPORT void sg_replay_destroy(struct sg_replay *replay);
SG_EXPORT int32_t sg_replay_add(struct sg_replay *replay, int32_t cursor, int64_t first_start, const char *label,
                                const char *name);
SG_EXPORT int32_t sg_replay_feed(struct sg_replay *replay, int32_t cursor, const struct sg_batch *batch,
                                 const struct sg_texts *texts);
SG_EXPORT int32_t sg_replay_run(struct sg_replay *replay, char *buffer, int64_t size, int64_t *written,
                                int32_t *cursor);

#endif
