/*
 * Threads that get their names when they have made calls already. They have them until there is something to read
 * (or the end of the file). With the name of a program as argument, it is executed then, by the first thread.
 */
#include "check.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

static pthread_barrier_t named;

TRACED int called(int value)
{
    return value + 1;
}

TRACED void *work(void *name)
{
    called(1);
    pthread_setname_np(pthread_self(), name);
    pthread_barrier_wait(&named); /* both have begun, and have the names */
    pthread_barrier_wait(&named); /* and may end */
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    char byte;
    called(1);
    prctl(PR_SET_NAME, "the first");
    pthread_barrier_init(&named, NULL, 3);
    pthread_create(threads, NULL, work, "worker (a)");
    pthread_create(threads + 1, NULL, work, "worker b");
    pthread_barrier_wait(&named);
    if (read(0, &byte, 1) < 0)
        return 1;
    pthread_barrier_wait(&named);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    if (argc > 1)
        execl(argv[1], argv[1], (char *)0);
    return argc > 1;
}
