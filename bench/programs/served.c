/*
 * What a call costs while users come and go: reads lines "ROUNDS CALLS" and answers each with a line of JSON, the nanoseconds
 * a call of the leaf's twins, the best of the rounds. The twins take turns, as in calls.c, and the clock is the same.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include "shapes.h"

#define TWINS 3

static volatile long sink;

static double processor_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

#define MEASURE(function)                                                                                                  \
    static double measure_##function(long calls)                                                                           \
    {                                                                                                                      \
        long sum = 0;                                                                                                      \
        double began = processor_time();                                                                                   \
        for (long i = 0; i < calls; i++)                                                                                   \
            sum += function(i);                                                                                            \
        double taken = processor_time() - began;                                                                           \
        sink += sum;                                                                                                       \
        return taken / (double)calls;                                                                                      \
    }

MEASURE(plain_leaf)
MEASURE(floor_leaf)
MEASURE(traced_leaf)

int main(void)
{
    static double (*const twins[TWINS])(long) = {measure_plain_leaf, measure_floor_leaf, measure_traced_leaf};
    int rounds;
    long calls;
    while (scanf("%d %ld", &rounds, &calls) == 2) {
        double best[TWINS] = {0};
        for (int round = 0; round < rounds; round++)
            for (int twin = 0; twin < TWINS; twin++) {
                double taken = twins[twin](calls);
                if (!round || taken < best[twin])
                    best[twin] = taken;
            }
        printf("{\"plain\": %.3f, \"floor\": %.3f, \"traced\": %.3f}\n", best[0], best[1], best[2]);
        fflush(stdout);
    }
    return 0;
}
