/*
 * Predicates: small programs that decide for one call whether a user is told of it. The controller compiles them
 * (src/shadowgraph/ops/predicates.py, docs/predicates.md), the agent evaluates them (native/agent/predicate.c).
 *
 * A predicate is two programs. The first runs when the function is entered; if it does not hold, the call is none of this
 * user's. It may leave up to seven values for the second, which runs at the exit and knows result and duration.
 *
 * A program is a block of SG_PREDICATE_SIZE bytes: a head, the steps, and behind them constants and texts.
 *
 *      63                          32 31      24 23      16 15       8 7        0
 *     ┌──────────────────────────────┬──────────┬──────────┬──────────┬──────────┐
 *     │ number (signed)              │ right    │ left     │ to       │ op       │   one step
 *     └──────────────────────────────┴──────────┴──────────┴──────────┴──────────┘
 *
 * `left` and `right` are registers, 0 to 7. `left` may also be one of the words that the call has, so that the commonest
 * comparisons are one step: SG_PREDICATE_OF_ENTRY + n is the n-th integer argument in a register, SG_PREDICATE_OF_CALL + n
 * the n-th word from `returned` on. SG_PREDICATE_NUMBER in `right` stands for the number instead. `to` is the
 * register that a value goes to; for a condition it is the step to go to if the condition does not hold. Jumps lead forward
 * only, so that every program ends: a step that goes back, or does what it cannot, ends it with "no". A program that runs
 * over its last step says "yes".
 *
 * Numbers are 64 bits and wrap. Floating-point numbers are the bits of a double, and are only compared.
 */
#ifndef SHADOWGRAPH_PREDICATE_H
#define SHADOWGRAPH_PREDICATE_H

#include <stdint.h>

#define SG_PREDICATE_SIZE 1024
#define SG_PREDICATE_WORDS 127      /* steps, constants and texts of a program */
#define SG_PREDICATE_REGISTERS 8
#define SG_PREDICATE_SAVED 8        /* words from entry to exit: which could not be computed (bit n), then seven values */
#define SG_PREDICATE_NUMBER 0x80    /* in `right`: the number of the step */
#define SG_PREDICATE_OF_ENTRY 0x40  /* in `left`, see above */
#define SG_PREDICATE_OF_CALL 0x80
#define SG_PREDICATE_NO 255         /* in `to` of a condition: the program ends with "no" */
#define SG_PREDICATE_ARGUMENTS 64   /* integer arguments: six in registers, the others on the stack */
#define SG_PREDICATE_TEXT_LIMIT 4096 /* bytes of a string that are looked at to find its end */

enum sg_predicate_op {
    /* Conditions. Signed: */
    SG_PREDICATE_EQ,
    SG_PREDICATE_NE,
    SG_PREDICATE_LT,
    SG_PREDICATE_GE,
    /* Unsigned: */
    SG_PREDICATE_BELOW,
    SG_PREDICATE_NOT_BELOW,
    /* Left signed, right unsigned; compared as the numbers that they are: */
    SG_PREDICATE_MIXED_EQ,
    SG_PREDICATE_MIXED_NE,
    SG_PREDICATE_MIXED_LT,
    SG_PREDICATE_MIXED_GE,
    SG_PREDICATE_MIXED_LE,
    SG_PREDICATE_MIXED_GT,
    /* Doubles (IEEE 754). A NaN equals nothing and is not less than anything, so each has an opposite of its own: */
    SG_PREDICATE_FLOAT_EQ,
    SG_PREDICATE_FLOAT_NE,
    SG_PREDICATE_FLOAT_LT,
    SG_PREDICATE_FLOAT_NOT_LT,
    SG_PREDICATE_FLOAT_LE,
    SG_PREDICATE_FLOAT_NOT_LE,
    /* The string at address `left`, against the text at word (number & 0xffff) of (number >> 16) bytes: */
    SG_PREDICATE_TEXT_EQ,
    SG_PREDICATE_TEXT_NE,
    SG_PREDICATE_TEXT_STARTS,
    SG_PREDICATE_TEXT_NOT_STARTS,
    SG_PREDICATE_TEXT_ENDS,
    SG_PREDICATE_TEXT_NOT_ENDS,
    /* Never: goes to `to`. */
    SG_PREDICATE_JUMP,

    /* Values that the call has; `left` is which one, where there are several: */
    SG_PREDICATE_ARGUMENT,
    SG_PREDICATE_FLOAT_ARGUMENT,
    SG_PREDICATE_RESULT,      /* this and the next two: "no" for a call that has not returned to its caller */
    SG_PREDICATE_RESULT_HIGH,
    SG_PREDICATE_FLOAT_RESULT,
    SG_PREDICATE_SAVED_VALUE, /* "no" if it could not be computed */
    /* Constants: the number itself, or the word that it is the index of. */
    SG_PREDICATE_SMALL,
    SG_PREDICATE_LARGE,
    /* Operations on two values. Division rounds towards minus infinity. By zero, or a shift by a negative count: "no". */
    SG_PREDICATE_ADD,
    SG_PREDICATE_SUB,
    SG_PREDICATE_MUL,
    SG_PREDICATE_DIV,
    SG_PREDICATE_MOD,
    SG_PREDICATE_UNSIGNED_DIV,
    SG_PREDICATE_UNSIGNED_MOD,
    SG_PREDICATE_AND,
    SG_PREDICATE_OR,
    SG_PREDICATE_XOR,
    SG_PREDICATE_SHIFT_LEFT,
    SG_PREDICATE_SHIFT_RIGHT,
    SG_PREDICATE_UNSIGNED_SHIFT_RIGHT,
    SG_PREDICATE_SCALE,       /* the upper 64 bits of the product of two unsigned numbers */
    /* Operations on `left`: the low bits, with or without their sign; a float as a double. */
    SG_PREDICATE_I8,
    SG_PREDICATE_I16,
    SG_PREDICATE_I32,
    SG_PREDICATE_U8,
    SG_PREDICATE_U16,
    SG_PREDICATE_U32,
    SG_PREDICATE_WIDEN,
    /* The memory at address `left`, without a sign. Where there is none: "no". */
    SG_PREDICATE_MEMORY8,
    SG_PREDICATE_MEMORY16,
    SG_PREDICATE_MEMORY32,
    SG_PREDICATE_MEMORY64,
    /* Keeps `left` as value `to` for the exit. */
    SG_PREDICATE_SAVE,
    /* Until step `to`, what would end the program with "no" marks value `left` as not computed, and goes to `to`. */
    SG_PREDICATE_ATTEMPT,
};

struct sg_predicate {
    uint32_t steps; /* how many of the words are steps */
    uint32_t words; /* how many words are in use */
    uint64_t code[SG_PREDICATE_WORDS];
};

/*
 * What is known of a call. A pointer may be 0 where its values are not known: a program that asks for them says "no" (or
 * finds 0 in place of the integer arguments).
 */
struct sg_predicate_input {
    const uint64_t *integers;     /* rdi rsi rdx rcx r8 r9 at the entry, and two words more that can be read */
    const uint64_t *stack;        /* the first stack argument; the word before it (the return address) can be read */
    const uint64_t (*vectors)[2]; /* xmm0 to xmm7 at the entry */
    uint64_t *saved;              /* SG_PREDICATE_SAVED words, written at the entry, read at the exit */
    uint64_t returned;            /* whether there is a result: not for a call that was left by an exception */
    uint64_t result;              /* rax */
    uint64_t result_high;         /* rdx */
    uint64_t float_result;        /* xmm0, its low half */
    uint64_t ticks;               /* the duration */
    uint64_t depth;
    uint64_t thread, process;     /* their numbers */
};

/* What SG_PREDICATE_OF_CALL + n is. */
#define SG_PREDICATE_TICKS (SG_PREDICATE_OF_CALL + 4)
#define SG_PREDICATE_DEPTH (SG_PREDICATE_OF_CALL + 5)
#define SG_PREDICATE_THREAD (SG_PREDICATE_OF_CALL + 6)
#define SG_PREDICATE_PROCESS (SG_PREDICATE_OF_CALL + 7)

#endif
