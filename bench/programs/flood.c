/*
 * As many calls as the processors give: flood THREADS CALLS FILE.
 *
 * All threads begin at once and call the traced leaf CALLS times each. Writes a line of JSON to the file: nanoseconds by
 * the clock and of processor time, and the calls made.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "shapes.h"

#define MOST_THREADS 64

static pthread_barrier_t barrier;
static long calls;
static double processor_ns[MOST_THREADS];
static volatile long sink;

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void *run(void *argument)
{
    long sum = 0;
    pthread_barrier_wait(&barrier);
    double began = now(CLOCK_THREAD_CPUTIME_ID);
    for (long i = 0; i < calls; i++)
        sum += traced_leaf(i);
    processor_ns[(long)argument] = now(CLOCK_THREAD_CPUTIME_ID) - began;
    sink += sum;
    return 0;
}

int main(int count, char **arguments)
{
    long threads = count == 4 ? atol(arguments[1]) : 0;
    calls = count == 4 ? atol(arguments[2]) : 0;
    if (threads < 1 || threads > MOST_THREADS || calls < 1) {
        fprintf(stderr, "usage: flood THREADS CALLS FILE\n");
        return 2;
    }
    pthread_t ids[MOST_THREADS];
    double busy = 0;
    pthread_barrier_init(&barrier, 0, (unsigned)threads + 1);
    for (long thread = 0; thread < threads; thread++)
        pthread_create(&ids[thread], 0, run, (void *)thread);
    double began = now(CLOCK_MONOTONIC);
    pthread_barrier_wait(&barrier);
    for (long thread = 0; thread < threads; thread++) {
        pthread_join(ids[thread], 0);
        busy += processor_ns[thread];
    }
    double elapsed = now(CLOCK_MONOTONIC) - began;
    FILE *file = fopen(arguments[3], "w");
    if (!file)
        return 1;
    fprintf(file, "{\"elapsed_ns\": %.0f, \"processor_ns\": %.0f, \"made\": %ld}\n", elapsed, busy, calls * threads);
    return fclose(file) != 0;
}
