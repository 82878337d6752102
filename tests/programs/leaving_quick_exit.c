/* _exit from a thread while others are inside traced functions. */
#include <pthread.h>
#include <unistd.h>
#include "check.h"

static pthread_barrier_t barrier;

TRACED void sleeps(void)
{
    pthread_barrier_wait(&barrier);
    for (;;)
        pause();
}

TRACED void *sleeper(void *unused)
{
    sleeps();
    return unused;
}

TRACED void leaves(void) { _exit(5); }

TRACED void *leaver(void *unused)
{
    pthread_barrier_wait(&barrier);
    puts("OK");
    leaves();
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t id[4];
    rounds_of(argc, argv, 1);
    pthread_barrier_init(&barrier, NULL, 4);
    for (int i = 0; i < 3; i++)
        pthread_create(&id[i], NULL, sleeper, NULL);
    pthread_create(&id[3], NULL, leaver, NULL);
    pthread_join(id[0], NULL);
    return 1;
}
