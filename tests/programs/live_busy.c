/* Threads (the first argument says how many) that call a function until SIGTERM comes, and count the calls and the wrong results. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_int stop;
static atomic_long steps, wrong;

TRACED long step(long x)
{
    return 3 * x + 1;
}

static void *work(void *unused)
{
    long own = 0, bad = 0;
    (void)unused;
    for (; !stop; own++)
        bad += step(own) != 3 * own + 1;
    steps += own;
    wrong += bad;
    return NULL;
}

int main(int argc, char **argv)
{
    long count = rounds_of(argc, argv, 2);
    pthread_t threads[64];
    sigset_t set;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (long i = 0; i < count; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, NULL) == 0);
    puts("ready");
    EXPECT(sigwait(&set, &number) == 0);
    stop = 1;
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("step %ld wrong %ld\n", (long)steps, (long)wrong);
    return finish();
}
