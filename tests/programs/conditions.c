/*
 * Calls of which a condition is to choose some: by argument, result, duration, depth and thread. Some are left by longjmp.
 */
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <time.h>
#include <unistd.h>

static jmp_buf way_out;

TRACED int twice(int x)
{
    return 2 * x;
}

TRACED int down(int n)
{
    return n == 0 ? 0 : 1 + down(n - 1);
}

/* Leaves for good where x is odd. */
TRACED int leaves(int x)
{
    if (x & 1)
        longjmp(way_out, 1);
    return x;
}

TRACED long take_time(long milliseconds)
{
    struct timespec time = {0, milliseconds * 1000000};
    nanosleep(&time, NULL);
    return milliseconds;
}

static void *in_thread(void *unused)
{
    for (int i = 0; i < 7; i++)
        EXPECT(twice(1000 + i) == 2000 + 2 * i);
    return unused;
}

int main(void)
{
    pthread_t thread;
    for (int i = 0; i < 100; i++)
        EXPECT(twice(i) == 2 * i);
    EXPECT(down(20) == 20);
    for (volatile int i = 0; i < 10; i++)
        if (!setjmp(way_out))
            EXPECT(leaves(i) == i);
    for (int i = 0; i < 6; i++)
        take_time(i % 3 == 0 ? 30 : 0);
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);
    return finish();
}
