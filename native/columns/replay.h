/* What the merge of threads (replay.c) and the writing of lines (lines.c) share. */
#ifndef SHADOWGRAPH_REPLAY_H
#define SHADOWGRAPH_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "columns.h"

/* Text of an Arrow string column, or nothing. */
struct text {
    const char *data;
    int32_t length; /* -1: there is none */
};

struct replay_call {
    int64_t start, end;
    uint32_t function;
    uint16_t depth;
    uint8_t kind;
    struct text arguments, result; /* point into the batch, or (result of an open call) to a copy */
};

/* A buffer that lines are written to. Room for a whole line is checked before the line is begun. */
struct lines {
    char *at;
    char *end;
    bool timestamps; /* each line of a call begins with the time of what it says */
};

bool lines_have_room(const struct lines *lines, const struct sg_replay_names *names, const struct replay_call *call);
void write_switch(struct lines *lines, const char *from, const char *to);
void write_entry(struct lines *lines, const struct sg_replay_names *names, const char *label,
                 const struct replay_call *call);
void write_leaf(struct lines *lines, const struct sg_replay_names *names, const char *label,
                const struct replay_call *call);
void write_exit(struct lines *lines, const struct sg_replay_names *names, const char *label,
                const struct replay_call *call);

#endif
