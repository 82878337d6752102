/*
 * Threads (the first argument says how many) that call `common`, `one`, `common` and `other` in turns from the first line at
 * stdin to the second one, at which their counts of these calls are printed. A third line ends the program.
 */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define THREADS 64

struct counts {
    long common, one, other;
} __attribute__((aligned(64)));

static struct counts counts[THREADS];
static atomic_int go, stop;
static atomic_long wrong;

TRACED long common(long number)
{
    return number + 1;
}

TRACED long one(long number)
{
    return number + 2;
}

TRACED long other(long number)
{
    return number + 3;
}

static void *run(void *own)
{
    struct counts *mine = own;
    while (!go)
        usleep(1000);
    for (long number = 0; !stop; number++) {
        wrong += common(number) != number + 1;
        wrong += one(number) != number + 2;
        wrong += common(-number) != 1 - number;
        wrong += other(number) != number + 3;
        mine->common += 2;
        mine->one++;
        mine->other++;
    }
    return NULL;
}

INLINED void wait_for_line(void)
{
    for (int byte = 0; byte != '\n' && byte != EOF;)
        byte = getchar();
}

int main(int argc, char **argv)
{
    long count = rounds_of(argc, argv, 8);
    pthread_t threads[THREADS];
    for (long i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, run, &counts[i]);
    puts("ready");
    wait_for_line();
    go = 1;
    puts("going");
    wait_for_line();
    stop = 1;
    struct counts all = {0, 0, 0};
    for (long i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        all.common += counts[i].common;
        all.one += counts[i].one;
        all.other += counts[i].other;
    }
    printf("common %ld one %ld other %ld\n", all.common, all.one, all.other);
    wait_for_line();
    EXPECT(wrong == 0);
    return finish();
}
