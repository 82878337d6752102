/*
 * The lines of the function graph, laid out as the kernel's function_graph tracer does (kernel documentation:
 * trace/ftrace.rst, "function_graph"): the duration in microseconds, a mark before it if it is long, then the calls.
 */
#include "replay.h"

#include <string.h>

#include <shadowgraph/records.h>

/* Deeper calls are not indented further: a line should stay readable. */
#define DEEPEST_INDENT 200
#define LONGEST_TEXT (64 * 1024)
#define DURATION_WIDTH 12
#define SECONDS_WIDTH 6

static const struct {
    int64_t above;
    char mark;
} marks[] = {
    {1000000000, '$'}, {100000000, '@'}, {10000000, '*'}, {1000000, '#'}, {100000, '!'}, {10000, '+'},
};

static void put(struct lines *lines, const char *text, size_t length)
{
    memcpy(lines->at, text, length);
    lines->at += length;
}

static void put_string(struct lines *lines, const char *text)
{
    put(lines, text, strlen(text));
}

static void put_spaces(struct lines *lines, int count)
{
    memset(lines->at, ' ', (size_t)count);
    lines->at += count;
}

static void put_text(struct lines *lines, const struct text *text)
{
    if (text->length > 0)
        put(lines, text->data, text->length < LONGEST_TEXT ? (size_t)text->length : LONGEST_TEXT);
}

static struct text table_entry(const char *table, const uint32_t *offsets, uint32_t functions, uint32_t function)
{
    uint32_t row = function < functions ? function : functions - 1;

    return (struct text){table + offsets[row], (int32_t)(offsets[row + 1] - offsets[row])};
}

static struct text name_of(const struct sg_replay_names *names, uint32_t function)
{
    return table_entry(names->text, names->offsets, names->functions, function);
}

static struct text place_of(const struct sg_replay_names *names, uint32_t function)
{
    return table_entry(names->places, names->place_offsets, names->functions, function);
}

static size_t bound(const struct text *text)
{
    if (text->length < 0)
        return 0;
    return text->length < LONGEST_TEXT ? (size_t)text->length : LONGEST_TEXT;
}

bool lines_have_room(const struct lines *lines, const struct sg_replay_names *names, const struct replay_call *call)
{
    struct text name = name_of(names, call->function), place = place_of(names, call->function);
    size_t need = 2 * DEEPEST_INDENT + 1024;

    need += bound(&name) + bound(&place) + bound(&call->arguments) + bound(&call->result);
    return (size_t)(lines->end - lines->at) >= need;
}

static char mark_of(int64_t duration)
{
    for (size_t at = 0; at < sizeof(marks) / sizeof(marks[0]); at++) {
        if (duration > marks[at].above)
            return marks[at].mark;
    }
    return ' ';
}

/* Microseconds with three decimals, fewer where the whole would be longer than seven characters. */
static void put_duration(struct lines *lines, int64_t nanoseconds)
{
    char digits[24];
    char *begin = lines->at;
    uint64_t whole = (uint64_t)nanoseconds / 1000;
    unsigned rest = (unsigned)((uint64_t)nanoseconds % 1000);
    int length = 0, decimals;

    *lines->at++ = mark_of(nanoseconds);
    *lines->at++ = ' ';
    begin = lines->at;
    do {
        digits[length++] = (char)('0' + whole % 10);
        whole /= 10;
    } while (whole);
    decimals = 6 - length;
    for (int at = length; at > 0; at--)
        *lines->at++ = digits[at - 1];
    if (decimals > 0) {
        char fraction[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
        put(lines, fraction, decimals < 3 ? (size_t)decimals + 1 : 4);
    }
    put(lines, " us ", 4);
    if (lines->at - begin < DURATION_WIDTH)
        put_spaces(lines, (int)(DURATION_WIDTH - (lines->at - begin)));
}

/* The time since the start of the trace, in seconds with nine decimals, if it is asked for. */
static void put_time(struct lines *lines, int64_t nanoseconds)
{
    char digits[32];
    int length = 0;
    bool negative = nanoseconds < 0;
    uint64_t rest = negative ? -(uint64_t)nanoseconds : (uint64_t)nanoseconds;

    if (!lines->timestamps)
        return;
    while (rest || length < 11) {
        if (length == 9)
            digits[length++] = '.';
        digits[length++] = (char)('0' + rest % 10);
        rest /= 10;
    }
    if (negative)
        digits[length++] = '-';
    if (length < SECONDS_WIDTH + 10)
        put_spaces(lines, SECONDS_WIDTH + 10 - length);
    while (length)
        *lines->at++ = digits[--length];
    put(lines, "  ", 2);
}

static void put_indent(struct lines *lines, uint16_t depth)
{
    put(lines, "|  ", 3);
    put_spaces(lines, 2 * (depth < DEEPEST_INDENT ? depth : DEEPEST_INDENT));
}

static void put_call(struct lines *lines, const struct sg_replay_names *names, const struct replay_call *call)
{
    struct text name = name_of(names, call->function);

    put_text(lines, &name);
    *lines->at++ = '(';
    put_text(lines, &call->arguments);
    *lines->at++ = ')';
}

static const char *ending_of(uint8_t kind)
{
    switch (kind) {
    case SG_KIND_UNWOUND:
        return "unwound";
    case SG_KIND_TAIL:
        return "tail call";
    case SG_KIND_OPEN:
        return "open";
    default:
        return NULL;
    }
}

/* How the call ended, and what it returned: what stands in the comment behind it. */
static void put_ending(struct lines *lines, const struct replay_call *call)
{
    const char *ending = ending_of(call->kind);

    if (call->result.length >= 0) {
        put(lines, " = ", 3);
        put_text(lines, &call->result);
    }
    if (ending) {
        put(lines, " (", 2);
        put_string(lines, ending);
        *lines->at++ = ')';
    }
}

static void put_place(struct lines *lines, const struct sg_replay_names *names, uint32_t function)
{
    struct text place = place_of(names, function);

    if (place.length > 0) {
        put(lines, " /* ", 4);
        put_text(lines, &place);
        put(lines, " */", 3);
    }
}

void write_entry(struct lines *lines, const struct sg_replay_names *names, const char *label,
                 const struct replay_call *call)
{
    put_time(lines, call->start);
    put_string(lines, label);
    put_spaces(lines, 2 + DURATION_WIDTH);
    put_indent(lines, call->depth);
    put_call(lines, names, call);
    put(lines, " {", 2);
    put_place(lines, names, call->function);
    *lines->at++ = '\n';
}

void write_leaf(struct lines *lines, const struct sg_replay_names *names, const char *label,
                const struct replay_call *call)
{
    put_time(lines, call->start);
    put_string(lines, label);
    put_duration(lines, call->end - call->start);
    put_indent(lines, call->depth);
    put_call(lines, names, call);
    *lines->at++ = ';';
    if (call->result.length >= 0 || call->kind != SG_KIND_RETURNED) {
        put(lines, " /*", 3);
        put_ending(lines, call);
        put(lines, " */", 3);
    }
    put_place(lines, names, call->function);
    *lines->at++ = '\n';
}

void write_exit(struct lines *lines, const struct sg_replay_names *names, const char *label,
                const struct replay_call *call)
{
    struct text name = name_of(names, call->function);

    put_time(lines, call->end);
    put_string(lines, label);
    put_duration(lines, call->end - call->start);
    put_indent(lines, call->depth);
    put(lines, "} /* ", 5);
    put_text(lines, &name);
    put_ending(lines, call);
    put(lines, " */\n", 4);
}

void write_switch(struct lines *lines, const char *from, const char *to)
{
    static const char rule[] = " ------------------------------------------\n";

    put_string(lines, rule);
    put(lines, "  ", 2);
    put_string(lines, from);
    put(lines, "  =>  ", 6);
    put_string(lines, to);
    *lines->at++ = '\n';
    put_string(lines, rule);
    *lines->at++ = '\n';
}
