/*
 * What calls cost: calls ROUNDS CALLS THREADS SHAPE...
 *
 * In each round each shape takes about CALLS calls of each of its twins in turns, so that whatever disturbs the machine
 * disturbs all of them alike. The clock is the thread's own processor time: what other programs take is not in it, nor is
 * the time a thread sleeps because a buffer is full. Prints a line of JSON for each shape and twin: nanoseconds a call, a
 * figure a round, of each thread; and the calls of traced functions in all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shapes.h"

#define MOST_ROUNDS 1000
#define MOST_THREADS 64
#define TWINS 3

static const char *const twin_names[TWINS] = {"plain", "floor", "traced"};

#define REPEAT(function, argument)                                                                                         \
    static long repeat_##function(long n)                                                                                  \
    {                                                                                                                      \
        long sum = 0;                                                                                                      \
        for (long i = 0; i < n; i++)                                                                                       \
            sum += function(argument);                                                                                     \
        return sum;                                                                                                        \
    }

REPEAT(plain_leaf, i)
REPEAT(floor_leaf, i)
REPEAT(traced_leaf, i)
REPEAT(plain_fib, FIB)
REPEAT(floor_fib, FIB)
REPEAT(traced_fib, FIB)
REPEAT(plain_chain, i)
REPEAT(floor_chain, i)
REPEAT(traced_chain, i)
REPEAT(plain_turns, i)
REPEAT(traced_turns, i)
REPEAT(plain_forward, i)
REPEAT(traced_forward, i)
REPEAT(plain_tail, i)
REPEAT(traced_tail, i)
REPEAT(library_leaf, i)

struct shape {
    const char *name;
    long calls;                    /* of one repetition */
    long traced;                   /* of those, calls of functions that are traced if all of the executable's are */
    long around;                   /* traced calls besides, however many repetitions */
    long (*repeat[TWINS])(long n); /* 0: this twin is as that of the leaf */
};

static const struct shape shapes[] = {
    {"leaf", 1, 1, 0, {repeat_plain_leaf, repeat_floor_leaf, repeat_traced_leaf}},
    {"recursion", FIB_CALLS, FIB_CALLS, 0, {repeat_plain_fib, repeat_floor_fib, repeat_traced_fib}},
    {"chain", CHAIN, CHAIN, 0, {repeat_plain_chain, repeat_floor_chain, repeat_traced_chain}},
    {"turns", TURNS, TURNS, 0, {repeat_plain_turns, 0, repeat_traced_turns}},
    {"forward", PAIR, PAIR, 0, {repeat_plain_forward, 0, repeat_traced_forward}},
    {"tail", PAIR, PAIR, 0, {repeat_plain_tail, 0, repeat_traced_tail}},
    {"library", 1, 1, 0, {0, 0, repeat_library_leaf}},
    {"library_inside", 1, 0, 1, {0, 0, library_loop}},
    {"in_loop", 1, 1, 1, {plain_loop, 0, traced_loop}},
    {"in_outer_loop", 1, 1, 2, {plain_outer_loop, 0, traced_outer_loop}},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

static int rounds, threads;
static long calls;
static const struct shape *chosen[SHAPES];
static int chosen_count;
static pthread_barrier_t barrier;
static double figures[MOST_THREADS][SHAPES][TWINS][MOST_ROUNDS];
static volatile long sink;

static double processor_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static long repetitions(const struct shape *shape)
{
    return calls / shape->calls > 0 ? calls / shape->calls : 1;
}

/* Whether all twins of a shape compute the same. */
static int agree(const struct shape *shape)
{
    for (int twin = 1; twin < TWINS; twin++)
        if (shape->repeat[0] && shape->repeat[twin] && shape->repeat[0](1) != shape->repeat[twin](1))
            return 0;
    return 1;
}

static double measure(const struct shape *shape, int twin)
{
    long n = repetitions(shape);
    double began = processor_time();
    sink += shape->repeat[twin](n);
    return (processor_time() - began) / (double)(n * shape->calls);
}

static void *run(void *argument)
{
    long thread = (long)argument;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < chosen_count; i++)
            for (int twin = 0; twin < TWINS; twin++) {
                pthread_barrier_wait(&barrier);
                if (chosen[i]->repeat[twin])
                    figures[thread][i][twin][round] = measure(chosen[i], twin);
            }
    return 0;
}

static int choose(char **names)
{
    for (; *names; names++) {
        size_t i = 0;
        while (i < SHAPES && strcmp(*names, shapes[i].name))
            i++;
        if (i == SHAPES || chosen_count == SHAPES)
            return 0;
        chosen[chosen_count++] = &shapes[i];
    }
    return chosen_count;
}

static void print(int i, int twin)
{
    printf("{\"shape\": \"%s\", \"twin\": \"%s\", \"ns\": [", chosen[i]->name, twin_names[twin]);
    for (int thread = 0; thread < threads; thread++) {
        printf("%s[", thread ? ", " : "");
        for (int round = 0; round < rounds; round++)
            printf("%s%.3f", round ? ", " : "", figures[thread][i][twin][round]);
        printf("]");
    }
    printf("]}\n");
}

int main(int count, char **arguments)
{
    rounds = count > 4 ? atoi(arguments[1]) : 0;
    calls = count > 4 ? atol(arguments[2]) : 0;
    threads = count > 4 ? atoi(arguments[3]) : 0;
    if (rounds < 1 || rounds > MOST_ROUNDS || calls < 1 || threads < 1 || threads > MOST_THREADS || !choose(arguments + 4)) {
        fprintf(stderr, "usage: calls ROUNDS CALLS THREADS SHAPE...\n");
        return 2;
    }
    for (int i = 0; i < chosen_count; i++)
        if (!agree(chosen[i])) {
            fprintf(stderr, "calls: the twins of %s differ\n", chosen[i]->name);
            return 1;
        }
    pthread_t ids[MOST_THREADS];
    pthread_barrier_init(&barrier, 0, (unsigned)threads);
    for (long thread = 1; thread < threads; thread++)
        pthread_create(&ids[thread], 0, run, (void *)thread);
    run(0);
    for (int thread = 1; thread < threads; thread++)
        pthread_join(ids[thread], 0);
    long made = 0;
    for (int i = 0; i < chosen_count; i++) {
        if (chosen[i]->repeat[0])
            made += chosen[i]->traced + chosen[i]->around; /* by agree() */
        made += (repetitions(chosen[i]) * chosen[i]->traced + chosen[i]->around) * rounds * threads;
        for (int twin = 0; twin < TWINS; twin++)
            if (chosen[i]->repeat[twin])
                print(i, twin);
    }
    printf("{\"made\": %ld}\n", made);
    return 0;
}
