/*
 * fork within a traced function, while other threads make calls: the child returns through the calls its parent made, makes
 * calls of its own, and neither disturbs the other. Inherited calls end in the child as nobody's.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

static int stop;

TRACED long work(long x) { return x + 1; }

TRACED void *busy(void *unused)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        work(1);
    return unused;
}

TRACED long in_child(long x) { return work(x) + 1; }

TRACED pid_t forks(void) { return fork(); }

TRACED pid_t deeper(int depth) { return depth == 0 ? forks() : deeper(depth - 1); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 30);
    pthread_t id[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&id[i], NULL, busy, NULL);
    for (long i = 0; i < rounds; i++) {
        pid_t child = deeper(3);
        if (child == 0) {
            long sum = 0;
            for (long k = 0; k < 100; k++)
                sum += in_child(k);
            _exit(sum == 100 * 99 / 2 + 200 ? (int)(i % 100) : 255);
        }
        int status;
        waitpid(child, &status, 0);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == i % 100);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(id[i], NULL);
    return finish();
}
