/* The main thread leaves with pthread_exit, the program ends with its last thread. */
#include <pthread.h>
#include "check.h"

static pthread_t main_thread;

TRACED long work(long x) { return x + 1; }

TRACED void *thread(void *count)
{
    long sum = 0;
    pthread_join(main_thread, NULL);
    for (long i = 0; i < (long)count; i++)
        sum += work(i);
    EXPECT(sum == (long)count * ((long)count + 1) / 2);
    exit(finish());
}

TRACED void leaves(void) { pthread_exit(NULL); }

int main(int argc, char **argv)
{
    pthread_t id;
    main_thread = pthread_self();
    pthread_create(&id, NULL, thread, (void *)rounds_of(argc, argv, 100000));
    leaves();
    return 1;
}
