/*
 * Calls `leaf` exactly rounds * threads * 100 times, from `middle`, from `work`, and prints what it computed.
 * Arguments: rounds, threads (up to 64), exit status. With a fourth argument, a file name, it waits half-way in `wait_for`
 * until that file is there.
 */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { LEAVES = 100, MOST = 64 };

static long rounds = 10;
static const char *awaited;

TRACED unsigned leaf(unsigned x)
{
    return x * 3 + 1;
}

TRACED unsigned middle(unsigned x)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < LEAVES; i++)
        sum += leaf(x + i);
    return sum;
}

TRACED void wait_for(const char *file)
{
    printf("half-way\n");
    while (access(file, F_OK) != 0)
        usleep(1000);
}

TRACED void *work(void *first)
{
    unsigned sum = *(unsigned *)first;
    for (long i = 0; i < rounds; i++) {
        if (awaited && i == rounds / 2)
            wait_for(awaited);
        sum += middle((unsigned)i);
    }
    *(unsigned *)first = sum;
    return NULL;
}

int main(int argc, char **argv)
{
    static pthread_t threads[MOST];
    static unsigned sums[MOST];
    unsigned sum = 0;
    long count = argc > 2 ? atol(argv[2]) : 2;
    rounds = rounds_of(argc, argv, rounds);
    awaited = argc > 4 ? argv[4] : NULL;
    for (long i = 0; i < count; i++) {
        sums[i] = (unsigned)i;
        pthread_create(threads + i, NULL, work, sums + i);
    }
    for (long i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        sum += sums[i];
    }
    printf("%u\n", sum);
    return argc > 3 ? atoi(argv[3]) : 0;
}
