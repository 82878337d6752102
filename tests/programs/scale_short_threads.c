/* Five thousand threads that live for a moment, some detached. */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
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

/* How many threads the process has, main among them. */
INLINED long threads_left(void)
{
    DIR *tasks = opendir("/proc/self/task");
    long entries = 0;
    while (tasks && readdir(tasks))
        entries++;
    closedir(tasks);
    return entries - 2; /* . and .. */
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
        int is_detached = i % 3 == 0;
        int bad = pthread_create(&id, is_detached ? &detached : NULL, thread, (void *)i);
        EXPECT(bad == 0);
        sem_wait(&ended);
        if (!is_detached)
            pthread_join(id, NULL);
    }
    /* A detached thread has posted before it returns, and it may be a while until it is run again: only when it is gone
     * is its call certainly over. */
    while (threads_left() > 1)
        sched_yield();
    EXPECT(sum == rounds * (rounds + 1) / 2);
    return finish();
}
