/* The agent's evaluator of predicates, timed; and two time stamps to compare it with. */
#include "../../native/agent/predicate.c"

#define VISIBLE __attribute__((visibility("default")))

static uint64_t nanoseconds(void)
{
    uint64_t time[2];
    sg_kernel2(228 /* clock_gettime */, 1 /* CLOCK_MONOTONIC */, time);
    return time[0] * 1000000000ull + time[1];
}

VISIBLE uint64_t time_predicate(const struct sg_predicate *predicate, const struct sg_predicate_input *input, uint64_t rounds)
{
    uint64_t start = nanoseconds(), held = 0;
    for (uint64_t i = 0; i < rounds; i++)
        held += (uint64_t)sg_predicate_holds(predicate, input);
    uint64_t end = nanoseconds();
    return held == rounds ? end - start : 0; /* 0: it should have held */
}

VISIBLE uint64_t time_two_stamps(uint64_t rounds)
{
    uint64_t start = nanoseconds();
    for (uint64_t i = 0; i < 2 * rounds; i++)
        __asm__ volatile("rdtsc" : : : "rax", "rdx", "memory");
    return nanoseconds() - start;
}
