/* Five thousand threads that live for a moment, some detached. */
#include <pthread.h>
#include <semaphore.h>
#include "check.h"

static sem_t ended;
static long sum;

TRACED long work(long x) { return x + 1; }

TRACED void *thread(void *number)
{
    __atomic_add_fetch(&sum, work((long)number), __ATOMIC_RELAXED);
    sem_post(&ended);
    return NULL;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 5000);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sem_init(&ended, 0, 0);
    for (long i = 0; i < rounds; i++) {
        pthread_t id;
        int is_detached = (rounds - i) % 3 == 0; /* not the last one: it may not have returned at the end */
        int bad = pthread_create(&id, is_detached ? &detached : NULL, thread, (void *)i);
        EXPECT(bad == 0);
        sem_wait(&ended);
        if (!is_detached)
            pthread_join(id, NULL);
    }
    EXPECT(sum == rounds * (rounds + 1) / 2);
    return finish();
}
