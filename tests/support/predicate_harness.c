/* The evaluator of predicates on its own, for tests: called, timed, and given random programs. */
#include "predicate.c"

#define VISIBLE __attribute__((visibility("default")))

VISIBLE int harness_holds(const struct sg_predicate *predicate, const struct sg_predicate_input *input)
{
    return sg_predicate_holds(predicate, input);
}

static uint64_t now(void)
{
    uint64_t time[2];
    sg_kernel2(228 /* clock_gettime */, 1 /* CLOCK_MONOTONIC */, time);
    return time[0] * 1000000000ull + time[1];
}

/* How long so many evaluations take, in nanoseconds; `held` is how often the predicate did. */
VISIBLE uint64_t harness_time(const struct sg_predicate *predicate, const struct sg_predicate_input *input, uint64_t rounds,
                              uint64_t *held)
{
    uint64_t start = now();
    *held = 0;
    for (uint64_t i = 0; i < rounds; i++)
        *held += (uint64_t)sg_predicate_holds(predicate, input);
    return now() - start;
}

/* xorshift64* (Vigna, ACM TOMS 42, 2016) */
static uint64_t random_state;
static uint64_t random_word(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 2685821657736338717ull;
}

/* A step that is mostly meaningful, so that programs run for a while; or any word. */
static uint64_t random_step(uint32_t at)
{
    uint64_t word = random_word();
    if (word % 16 == 0)
        return random_word();
    uint64_t op = random_word() % (SG_PREDICATE_ATTEMPT + 1), to = word >> 8 & 7;
    if (op <= SG_PREDICATE_JUMP || op == SG_PREDICATE_ATTEMPT)
        to = at + 1 + (word >> 12 & 7);
    uint64_t right = word >> 16 & 1 ? SG_PREDICATE_NUMBER : word >> 20 & 7;
    uint64_t number = word >> 24 & 1 ? word >> 32 & 0xff : word >> 32;
    if (op >= SG_PREDICATE_TEXT_EQ && op <= SG_PREDICATE_TEXT_NOT_ENDS)
        number = (word >> 32 & 0x7f) | (word >> 40 & 0x3f) << 16;
    return op | (to & 0xff) << 8 | (word >> 28 & 0x3f) << 16 | right << 24 | number << 32;
}

/*
 * Evaluates random programs. `memory` is good to read for `size` bytes, with nothing behind it. Returns how many held; -1
 * if one has written outside of its saved words.
 */
VISIBLE long harness_random(uint64_t seed, uint64_t rounds, const char *memory, uint64_t size)
{
    struct sg_predicate predicate;
    uint64_t guarded[SG_PREDICATE_SAVED + 2], integers[6], vectors[8][2];
    const uint64_t *stack = (const uint64_t *)(memory + size) - 4;
    long held = 0;
    random_state = seed * 2 + 1;
    for (uint64_t round = 0; round < rounds; round++) {
        predicate.steps = round % 8 ? random_word() % (SG_PREDICATE_WORDS + 1) : (uint32_t)random_word();
        predicate.words = (uint32_t)random_word();
        for (uint32_t i = 0; i < SG_PREDICATE_WORDS; i++)
            predicate.code[i] = random_step(i);
        for (int i = 0; i < 6; i++)
            integers[i] = i % 2 ? random_word() : (uint64_t)memory + random_word() % (size + 16);
        for (int i = 0; i < 8; i++)
            vectors[i][0] = random_word();
        for (int i = 0; i < SG_PREDICATE_SAVED + 2; i++)
            guarded[i] = round;
        struct sg_predicate_input input = {
            .integers = round % 5 ? integers : 0,
            .stack = round % 7 ? stack : 0,
            .vectors = round % 3 ? (const uint64_t(*)[2])vectors : 0,
            .saved = round % 11 ? guarded + 1 : 0,
            .returned = round % 4,
            .result = (uint64_t)memory + size - 3,
            .ticks = random_word(),
        };
        int answer = sg_predicate_holds(&predicate, &input);
        if ((answer | 1) != 1 || guarded[0] != round || guarded[SG_PREDICATE_SAVED + 1] != round)
            return -1;
        held += answer;
    }
    return held;
}
