/* A timer signal every 50 microseconds whose handler makes traced calls, over a main thread that makes calls all the time. */
#include <errno.h>
#include <time.h>
#include "check.h"

static volatile long ticks;

TRACED long handler_work(long x) { return x + 1; }

TRACED void on_tick(int signal)
{
    int saved = errno;
    (void)signal;
    ticks = handler_work(ticks);
    errno = saved;
}

TRACED long leaf(long x) { return x ^ 3; }

TRACED long recursive(long depth) { return depth == 0 ? leaf(0) : recursive(depth - 1) + 1; }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 300000);
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec every = {{0, 50000}, {0, 50000}};
    timer_t timer;
    sigaction(SIGRTMIN, &action, NULL);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &every, NULL);
    for (long i = 0; i < rounds; i++)
        EXPECT(recursive(8) == 11);
    timer_delete(timer);
    printf("ticks=%ld\n", ticks);
    return finish();
}
