/*
 * Captured arguments and results, from the words that stand before a record to text.
 *
 * The words of a call (docs/trace-format.md) are its values in the order of its specification, those of the entry
 * first. An integer, a pointer or a floating-point number is one word. A string is two words, the pointer and
 * length | flags << 32, and then its bytes, filled up to whole words.
 */
#include "columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shadowgraph/records.h>

#define STRING_CUT 1 /* the string goes on behind these bytes */
#define STRING_BAD 2 /* the pointer points nowhere */

struct reader {
    const uint64_t *at, *end;
};

struct writer {
    char *at;
};

static void put(struct writer *writer, const char *text, size_t length)
{
    memcpy(writer->at, text, length);
    writer->at += length;
}

static void put_signed(struct writer *writer, int64_t value)
{
    writer->at += sprintf(writer->at, "%lld", (long long)value);
}

static void put_unsigned(struct writer *writer, uint64_t value)
{
    writer->at += sprintf(writer->at, "%llu", (unsigned long long)value);
}

static void put_pointer(struct writer *writer, uint64_t value)
{
    if (value)
        writer->at += sprintf(writer->at, "0x%llx", (unsigned long long)value);
    else
        put(writer, "NULL", 4);
}

/* The shortest decimal that reads back as the same number. */
static void put_float(struct writer *writer, double value, bool single)
{
    int length = 0;

    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        length = sprintf(writer->at, "%.*g", digits, value);
        if (single ? strtof(writer->at, NULL) == (float)value : strtod(writer->at, NULL) == value)
            break;
    }
    writer->at += length;
}

static void put_byte(struct writer *writer, unsigned char byte, char quote)
{
    static const char escapes[] = "\a\b\t\n\v\f\r", letters[] = "abtnvfr";
    const char *escape = byte ? strchr(escapes, byte) : NULL;

    if (escape) {
        *writer->at++ = '\\';
        *writer->at++ = letters[escape - escapes];
    } else if (byte == (unsigned char)quote || byte == '\\') {
        *writer->at++ = '\\';
        *writer->at++ = (char)byte;
    } else if (byte < 0x20 || byte >= 0x7f) {
        writer->at += sprintf(writer->at, "\\x%02x", byte);
    } else {
        *writer->at++ = (char)byte;
    }
}

/* How many bytes of a well-formed UTF-8 sequence of more than one byte stand here, 0 if none does. */
static size_t utf8_length(const unsigned char *bytes, size_t left)
{
    size_t length = bytes[0] >= 0xf0 && bytes[0] < 0xf5 ? 4 : bytes[0] >= 0xe0 ? 3 : bytes[0] >= 0xc2 ? 2 : 0;

    if (bytes[0] >= 0xf5 || length == 0 || length > left)
        return 0;
    for (size_t at = 1; at < length; at++) {
        if ((bytes[at] & 0xc0) != 0x80)
            return 0;
    }
    if ((bytes[0] == 0xe0 && bytes[1] < 0xa0) || (bytes[0] == 0xed && bytes[1] >= 0xa0) ||
        (bytes[0] == 0xf0 && bytes[1] < 0x90) || (bytes[0] == 0xf4 && bytes[1] >= 0x90))
        return 0;
    return length;
}

/* The bytes in quotes; what is well-formed UTF-8 stays as it is, so that the column is UTF-8 as Parquet wants it. */
static void put_bytes(struct writer *writer, const unsigned char *bytes, size_t length)
{
    *writer->at++ = '"';
    for (size_t at = 0; at < length;) {
        size_t together = utf8_length(bytes + at, length - at);
        if (together) {
            put(writer, (const char *)bytes + at, together);
            at += together;
        } else {
            put_byte(writer, bytes[at++], '"');
        }
    }
    *writer->at++ = '"';
}

static bool put_string(struct reader *reader, struct writer *writer)
{
    uint64_t pointer, head;
    size_t length, words;

    if (reader->end - reader->at < 2)
        return false;
    pointer = *reader->at++;
    head = *reader->at++;
    length = (size_t)(uint32_t)head;
    words = (length + 7) / 8;
    if ((size_t)(reader->end - reader->at) < words)
        return false;
    if (pointer == 0 || (head >> 32 & STRING_BAD)) {
        put_pointer(writer, pointer);
    } else {
        put_bytes(writer, (const unsigned char *)reader->at, length);
        if (head >> 32 & STRING_CUT)
            put(writer, "...", 3);
    }
    reader->at += words;
    return true;
}

static void put_char(struct writer *writer, unsigned char byte)
{
    *writer->at++ = '\'';
    put_byte(writer, byte, '\'');
    *writer->at++ = '\'';
}

static void put_number(struct writer *writer, uint8_t type, uint64_t word)
{
    double number;
    float single;

    switch (type) {
    case SG_TYPE_I8: put_signed(writer, (int8_t)word); break;
    case SG_TYPE_I16: put_signed(writer, (int16_t)word); break;
    case SG_TYPE_I32: put_signed(writer, (int32_t)word); break;
    case SG_TYPE_I64: put_signed(writer, (int64_t)word); break;
    case SG_TYPE_U8: put_unsigned(writer, (uint8_t)word); break;
    case SG_TYPE_U16: put_unsigned(writer, (uint16_t)word); break;
    case SG_TYPE_U32: put_unsigned(writer, (uint32_t)word); break;
    case SG_TYPE_U64: put_unsigned(writer, word); break;
    case SG_TYPE_BOOL: put(writer, (uint8_t)word ? "true" : "false", (uint8_t)word ? 4 : 5); break;
    case SG_TYPE_CHAR: put_char(writer, (unsigned char)word); break;
    case SG_TYPE_F32:
        memcpy(&single, &word, sizeof(single));
        put_float(writer, (double)single, true);
        break;
    case SG_TYPE_F64:
        memcpy(&number, &word, sizeof(number));
        put_float(writer, number, false);
        break;
    default: put_pointer(writer, word);
    }
}

/* One value with its name, if it has one; false where the words end before it. */
static bool put_item(const struct sg_value_specs *specs, const struct sg_value_item *item, struct reader *reader,
                     struct writer *writer, bool first)
{
    struct writer undo = *writer;

    if (!first)
        put(writer, ", ", 2);
    put(writer, specs->names + item->name, item->name_length);
    if (item->name_length)
        *writer->at++ = '=';
    if (item->type == SG_TYPE_STRING) {
        if (put_string(reader, writer))
            return true;
    } else if (reader->at < reader->end) {
        put_number(writer, item->type, *reader->at++);
        return true;
    }
    *writer = undo;
    return false;
}

/* The items of one side of a call. Says whether there was any. */
static bool put_side(const struct sg_value_specs *specs, const struct sg_value_item *items, uint32_t count, uint8_t side,
                     struct reader *reader, struct writer *writer)
{
    bool any = false;

    for (uint32_t at = 0; at < count; at++) {
        if (items[at].side == side) {
            if (!put_item(specs, &items[at], reader, writer, !any))
                break;
            any = true;
        }
    }
    return any;
}

/* No value takes more characters than this for each word, its name apart. */
#define CHARACTERS_A_WORD 40

static bool has_room(const struct sg_text_column *column, const char *at, const struct sg_call *call, uint64_t names)
{
    uint64_t need = ((uint64_t)call->value_slots * 2 + 2) * CHARACTERS_A_WORD + names;

    return (uint64_t)(column->data + column->size - at) > need;
}

static void end_row(struct sg_text_column *column, int64_t row, const char *at, bool any)
{
    column->offsets[row + 1] = (int32_t)(at - column->data);
    column->valid[row] = any;
}

/*
 * Text for the calls named by order[0..count), into row row and the following ones of two columns whose offsets are
 * right up to row. Returns how many rows were written: less than count where a column's data has no more room.
 */
int64_t sg_format_values(const struct sg_call *calls, const uint32_t *order, int64_t count, const uint64_t *slots,
                         const struct sg_value_specs *specs, struct sg_text_column *arguments,
                         struct sg_text_column *results, int64_t row)
{
    for (int64_t at = 0; at < count; at++, row++) {
        const struct sg_call *call = &calls[order[at]];
        struct writer in = {arguments->data + arguments->offsets[row]}, out = {results->data + results->offsets[row]};
        bool any_in = false, any_out = false;

        if (call->values && call->function < specs->functions) {
            const struct sg_value_item *items = specs->items + specs->first_item[call->function];
            uint32_t number = specs->first_item[call->function + 1] - specs->first_item[call->function];
            struct reader reader = {slots + 2 * (uint64_t)(call->values - 1), NULL};
            uint64_t names = 0;

            reader.end = reader.at + 2 * (uint64_t)call->value_slots;
            for (uint32_t item = 0; item < number; item++)
                names += items[item].name_length + 8u;
            if (!has_room(arguments, in.at, call, names) || !has_room(results, out.at, call, names))
                return at;
            any_in = put_side(specs, items, number, SG_SIDE_ENTRY, &reader, &in);
            if (call->kind == SG_KIND_RETURNED)
                any_out = put_side(specs, items, number, SG_SIDE_RETURN, &reader, &out);
        }
        end_row(arguments, row, in.at, any_in);
        end_row(results, row, out.at, any_out);
    }
    return count;
}
