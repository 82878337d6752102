/*
 * Calls FUNCTIONS functions (many.c, generated) in turns, in a thread of its own, and looks at the clock after each few. To the
 * line "watch" it answers how long that thread was held up since the last one, in milliseconds: gaps of more than half a
 * millisecond, without the time in which it waited for a processor (schedstat: proc(5), the second number).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GAP 5e5
#define TURN 16

extern int (*const many[FUNCTIONS])(int);

static _Atomic int ends;
static _Atomic double total, longest;
static volatile int sink;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* How long the thread has waited for a processor so far. */
static double waited(int schedstat)
{
    char text[100] = "", *rest;
    if (pread(schedstat, text, sizeof text - 1, 0) <= 0)
        return 0;
    strtod(text, &rest);
    return strtod(rest, 0);
}

static void *run(void *unused)
{
    int schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    double before = now(), waited_before = waited(schedstat);
    for (int i = 0; !ends; i = (i + TURN) % (FUNCTIONS / TURN * TURN)) {
        for (int k = 0; k < TURN; k++)
            sink += many[i + k](i);
        double time = now(), gap = time - before;
        before = time;
        if (gap <= GAP)
            continue;
        double waits = waited(schedstat);
        gap -= waits - waited_before; /* it may have been in others, shorter ones: then this one is a little too short */
        waited_before = waits;
        if (gap <= GAP)
            continue;
        total = total + gap;
        if (gap > longest)
            longest = gap;
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    char line[32];
    pthread_create(&thread, 0, run, 0);
    while (fgets(line, sizeof line, stdin) && !strcmp(line, "watch\n")) {
        printf("{\"total_ms\": %.3f, \"longest_ms\": %.3f}\n", total / 1e6, longest / 1e6);
        fflush(stdout);
        total = longest = 0;
    }
    ends = 1;
    pthread_join(thread, 0);
    return 0;
}
