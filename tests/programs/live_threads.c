/*
 * So many threads (the first argument), one after the other, that each call two functions and die, the second one as often as
 * the thread's number says; the program prints how often each was called.
 */
#include "check.h"

#include <pthread.h>

static long works, steps;

TRACED long step(long x)
{
    return x + 1;
}

TRACED void *work(void *number)
{
    long rounds = (long)number % 5, sum = 0;
    for (long i = 0; i < rounds; i++)
        sum += step(i);
    EXPECT(sum == rounds * (rounds + 1) / 2);
    works++;
    steps += rounds;
    return NULL;
}

int main(int argc, char **argv)
{
    long count = rounds_of(argc, argv, 100);
    for (long i = 0; i < count; i++) {
        pthread_t id;
        EXPECT(pthread_create(&id, NULL, work, (void *)i) == 0);
        pthread_join(id, NULL);
    }
    printf("work %ld step %ld\n", works, steps);
    return finish();
}
