/*
 * The evaluator of predicates. One loop over the steps; what reads memory lies apart, so that the plain comparisons stay
 * fast. The agent has no vector registers: doubles are compared by their bits.
 */
#include "predicate.h"

#include <stddef.h>

#include "doubles.h"
#include "kernel.h"

#define APART __attribute__((noinline, cold))

/* Memory that has been probed in this evaluation: the page of the last probe. */
struct view {
    uint64_t page;
};

static int reach(struct view *view, uint64_t address)
{
    uint64_t ignored;
    if (address >> 12 == view->page)
        return 1;
    if (!sg_peek(address & ~7ull, &ignored))
        return 0;
    view->page = address >> 12;
    return 1;
}

struct word16 {
    uint16_t value;
} __attribute__((packed, may_alias));
struct word32 {
    uint32_t value;
} __attribute__((packed, may_alias));
struct word64 {
    uint64_t value;
} __attribute__((packed, may_alias));

/* Reads 1, 2, 4 or 8 bytes that may lie across two pages. */
APART static int read_memory(struct view *view, uint64_t address, uint32_t size, uint64_t *value)
{
    if (!reach(view, address) || !reach(view, address + size - 1))
        return 0;
    if (size == 1)
        *value = *(volatile const uint8_t *)address;
    else if (size == 2)
        *value = ((volatile const struct word16 *)address)->value;
    else if (size == 4)
        *value = ((volatile const struct word32 *)address)->value;
    else
        *value = ((volatile const struct word64 *)address)->value;
    return 1;
}

static int read_byte(struct view *view, uint64_t address, uint8_t *byte)
{
    if (!reach(view, address))
        return 0;
    *byte = *(volatile const uint8_t *)address;
    return 1;
}

#define TEXT_DIFFERS 0
#define TEXT_MATCHES 1
#define TEXT_UNREADABLE 2

/* Whether a string begins with a text, or is one (`whole`). It is read as far as they are equal. */
static int text_begins(struct view *view, uint64_t address, const char *text, uint32_t length, int whole)
{
    for (uint32_t i = 0; i < length + (uint32_t)whole; i++) {
        uint8_t byte;
        if (!read_byte(view, address + i, &byte))
            return TEXT_UNREADABLE;
        if (byte != (i < length ? (uint8_t)text[i] : 0))
            return TEXT_DIFFERS;
    }
    return TEXT_MATCHES;
}

/* Whether a string ends with a text. One whose end does not come ends with nothing. */
static int text_ends(struct view *view, uint64_t address, const char *text, uint32_t length)
{
    for (uint32_t at = 0; at < SG_PREDICATE_TEXT_LIMIT; at++) {
        uint8_t byte;
        if (!read_byte(view, address + at, &byte))
            return TEXT_UNREADABLE;
        if (!byte)
            return at < length ? TEXT_DIFFERS : text_begins(view, address + at - length, text, length, 1);
    }
    return TEXT_DIFFERS;
}

/* `number` says where the text is, and how long. */
APART static int compare_text(struct view *view, const struct sg_predicate *predicate, uint32_t op, uint64_t address,
                              uint64_t number)
{
    uint32_t at = number & 0xffff, length = number >> 16 & 0xffff;
    if (at >= SG_PREDICATE_WORDS || length > (SG_PREDICATE_WORDS - at) * 8)
        return TEXT_UNREADABLE;
    const char *text = (const char *)&predicate->code[at];
    int found, negated = (op - SG_PREDICATE_TEXT_EQ) & 1;
    if (op >= SG_PREDICATE_TEXT_ENDS)
        found = text_ends(view, address, text, length);
    else
        found = text_begins(view, address, text, length, op <= SG_PREDICATE_TEXT_NE);
    return found == TEXT_UNREADABLE ? found : found ^ negated;
}

/* The n-th argument on the stack: the page of the return address is there, the next one is probed. */
APART static int read_stack(struct view *view, const uint64_t *stack, uint64_t index, uint64_t *value)
{
    uint64_t address = (uint64_t)(stack + index);
    if (!stack || (((uint64_t)(stack - 1) >> 12) != address >> 12 && !reach(view, address)))
        return 0;
    *value = *(volatile const uint64_t *)address;
    return 1;
}

/* --- doubles (IEEE 754-2008, section 5.11) --- */

/* A signed number in the order of the doubles; both zeros are 0. */
static int64_t ordered(uint64_t bits)
{
    return (int64_t)((int64_t)bits < 0 ? (1ull << 63) - bits : bits);
}

static int float_less(uint64_t left, uint64_t right, int or_equal)
{
    if (sg_is_nan(left) || sg_is_nan(right))
        return 0;
    return or_equal ? ordered(left) <= ordered(right) : ordered(left) < ordered(right);
}

static int float_equal(uint64_t left, uint64_t right)
{
    return !sg_is_nan(left) && !sg_is_nan(right) && ordered(left) == ordered(right);
}

/* --- operations that not every pair of numbers has --- */

/* Rounded towards minus infinity, as in Python: the remainder has the sign of the divisor. */
static int divide(uint64_t left, uint64_t right, uint64_t *quotient, uint64_t *remainder)
{
    int64_t a = (int64_t)left, b = (int64_t)right;
    if (!b)
        return 0;
    if (b == -1) { /* the quotient of the least number wraps, where the instruction would fault */
        *quotient = 0 - left;
        *remainder = 0;
        return 1;
    }
    int64_t q = a / b, r = a % b;
    if (r && (r < 0) != (b < 0)) {
        q--;
        r += b;
    }
    *quotient = (uint64_t)q;
    *remainder = (uint64_t)r;
    return 1;
}

static uint64_t shift_right(uint64_t value, uint64_t count)
{
    return (uint64_t)((int64_t)value >> (count < 63 ? count : 63));
}

/* --- the loop --- */

static const uint64_t nothing[8];
_Static_assert(sizeof(struct sg_predicate_input) - offsetof(struct sg_predicate_input, returned) == sizeof nothing,
               "what lies from `returned` on are the words that steps can name");

int sg_predicate_holds(const struct sg_predicate *predicate, const struct sg_predicate_input *input)
{
    uint64_t r[SG_PREDICATE_REGISTERS];
    r[0] = r[1] = r[2] = r[3] = r[4] = r[5] = r[6] = r[7] = 0;
    const uint64_t *sources[] = {r, input->integers ? input->integers : nothing, &input->returned, nothing};
    struct view view = {~0ull};
    uint32_t steps = predicate->steps < SG_PREDICATE_WORDS ? predicate->steps : SG_PREDICATE_WORDS;
    uint32_t at = 0, next, attempt = 0, attempted = 0;

    for (; at < steps; at = next) {
        uint64_t word = predicate->code[at];
        uint32_t op = word & 0xff, to = word >> 8 & 0xff, index = word >> 16 & 0xff;
        uint64_t left = sources[index >> 6][index & 7];
        uint64_t right = word & (uint64_t)SG_PREDICATE_NUMBER << 24 ? shift_right(word, 32) : r[word >> 24 & 7];
        uint64_t value, ignored;
        int holds;
        next = at + 1;

        switch (op) {
        case SG_PREDICATE_EQ: holds = left == right; break;
        case SG_PREDICATE_NE: holds = left != right; break;
        case SG_PREDICATE_LT: holds = (int64_t)left < (int64_t)right; break;
        case SG_PREDICATE_GE: holds = (int64_t)left >= (int64_t)right; break;
        case SG_PREDICATE_BELOW: holds = left < right; break;
        case SG_PREDICATE_NOT_BELOW: holds = left >= right; break;
        case SG_PREDICATE_MIXED_EQ: holds = (int64_t)left >= 0 && left == right; break;
        case SG_PREDICATE_MIXED_NE: holds = (int64_t)left < 0 || left != right; break;
        case SG_PREDICATE_MIXED_LT: holds = (int64_t)left < 0 || left < right; break;
        case SG_PREDICATE_MIXED_GE: holds = (int64_t)left >= 0 && left >= right; break;
        case SG_PREDICATE_MIXED_LE: holds = (int64_t)left < 0 || left <= right; break;
        case SG_PREDICATE_MIXED_GT: holds = (int64_t)left >= 0 && left > right; break;
        case SG_PREDICATE_FLOAT_EQ: holds = float_equal(left, right); break;
        case SG_PREDICATE_FLOAT_NE: holds = !float_equal(left, right); break;
        case SG_PREDICATE_FLOAT_LT: holds = float_less(left, right, 0); break;
        case SG_PREDICATE_FLOAT_NOT_LT: holds = !float_less(left, right, 0); break;
        case SG_PREDICATE_FLOAT_LE: holds = float_less(left, right, 1); break;
        case SG_PREDICATE_FLOAT_NOT_LE: holds = !float_less(left, right, 1); break;
        case SG_PREDICATE_TEXT_EQ:
        case SG_PREDICATE_TEXT_NE:
        case SG_PREDICATE_TEXT_STARTS:
        case SG_PREDICATE_TEXT_NOT_STARTS:
        case SG_PREDICATE_TEXT_ENDS:
        case SG_PREDICATE_TEXT_NOT_ENDS:
            holds = compare_text(&view, predicate, op, left, word >> 32);
            if (holds == TEXT_UNREADABLE)
                goto failed;
            break;
        case SG_PREDICATE_JUMP: holds = 0; break;

        case SG_PREDICATE_ARGUMENT:
            if (index < 6 && input->integers)
                value = input->integers[index];
            else if (index < 6 || index >= SG_PREDICATE_ARGUMENTS || !read_stack(&view, input->stack, index - 6, &value))
                goto failed;
            goto store;
        case SG_PREDICATE_FLOAT_ARGUMENT:
            if (!input->vectors)
                goto failed;
            value = input->vectors[index & 7][0];
            goto store;
        case SG_PREDICATE_RESULT:
        case SG_PREDICATE_RESULT_HIGH:
        case SG_PREDICATE_FLOAT_RESULT:
            if (!input->returned)
                goto failed;
            value = op == SG_PREDICATE_RESULT        ? input->result
                    : op == SG_PREDICATE_RESULT_HIGH ? input->result_high
                                                     : input->float_result;
            goto store;
        case SG_PREDICATE_SAVED_VALUE:
            if (!input->saved || input->saved[0] >> (index & 7) & 1)
                goto failed;
            value = input->saved[index & 7];
            goto store;

        case SG_PREDICATE_SMALL: value = right; goto store;
        case SG_PREDICATE_LARGE:
            if (right >= SG_PREDICATE_WORDS)
                goto failed;
            value = predicate->code[right];
            goto store;

        case SG_PREDICATE_ADD: value = left + right; goto store;
        case SG_PREDICATE_SUB: value = left - right; goto store;
        case SG_PREDICATE_MUL: value = left * right; goto store;
        case SG_PREDICATE_DIV:
            if (!divide(left, right, &value, &ignored))
                goto failed;
            goto store;
        case SG_PREDICATE_MOD:
            if (!divide(left, right, &ignored, &value))
                goto failed;
            goto store;
        case SG_PREDICATE_UNSIGNED_DIV:
        case SG_PREDICATE_UNSIGNED_MOD:
            if (!right)
                goto failed;
            value = op == SG_PREDICATE_UNSIGNED_DIV ? left / right : left % right;
            goto store;
        case SG_PREDICATE_AND: value = left & right; goto store;
        case SG_PREDICATE_OR: value = left | right; goto store;
        case SG_PREDICATE_XOR: value = left ^ right; goto store;
        case SG_PREDICATE_SHIFT_LEFT:
        case SG_PREDICATE_SHIFT_RIGHT:
        case SG_PREDICATE_UNSIGNED_SHIFT_RIGHT:
            if ((int64_t)right < 0)
                goto failed;
            if (op == SG_PREDICATE_SHIFT_RIGHT)
                value = shift_right(left, right);
            else
                value = right > 63 ? 0 : op == SG_PREDICATE_SHIFT_LEFT ? left << right : left >> right;
            goto store;
        case SG_PREDICATE_SCALE: value = (uint64_t)((unsigned __int128)left * right >> 64); goto store;

        case SG_PREDICATE_I8: value = (uint64_t)(int64_t)(int8_t)left; goto store;
        case SG_PREDICATE_I16: value = (uint64_t)(int64_t)(int16_t)left; goto store;
        case SG_PREDICATE_I32: value = (uint64_t)(int64_t)(int32_t)left; goto store;
        case SG_PREDICATE_U8: value = (uint8_t)left; goto store;
        case SG_PREDICATE_U16: value = (uint16_t)left; goto store;
        case SG_PREDICATE_U32: value = (uint32_t)left; goto store;
        case SG_PREDICATE_WIDEN: value = sg_widen((uint32_t)left); goto store;

        case SG_PREDICATE_MEMORY8:
        case SG_PREDICATE_MEMORY16:
        case SG_PREDICATE_MEMORY32:
        case SG_PREDICATE_MEMORY64:
            if (!read_memory(&view, left, 1u << (op - SG_PREDICATE_MEMORY8), &value))
                goto failed;
            goto store;

        case SG_PREDICATE_SAVE:
            if (!input->saved)
                goto failed;
            input->saved[to & 7] = left;
            continue;
        case SG_PREDICATE_ATTEMPT:
            attempt = to;
            attempted = index & 7;
            continue;
        default:
            return 0;
        }

        if (__builtin_expect(holds, 1))
            continue;
        if (to <= at || to == SG_PREDICATE_NO)
            return 0;
        next = to;
        continue;

    store:
        r[to & 7] = value;
        continue;

    failed:
        if (attempt <= at || !input->saved)
            return 0;
        input->saved[0] |= 1ull << attempted;
        next = attempt;
    }
    return 1;
}
