/* A coroutine that begins on one thread and is resumed, in the middle of traced calls, by others. */
#include <pthread.h>
#include <ucontext.h>
#include "check.h"

enum { STACK = 64 * 1024, THREADS = 4 };

static ucontext_t coroutine, resumer;
static long value, rounds;
static pthread_barrier_t barrier;

TRACED void yields(long next)
{
    value = next;
    swapcontext(&coroutine, &resumer);
}

TRACED void generates(long depth, long next)
{
    if (depth == 0)
        yields(next);
    else
        generates(depth - 1, next);
}

TRACED void body(void)
{
    for (long i = 0;; i++)
        generates(i % 4, i);
}

TRACED void resumes(long expected)
{
    swapcontext(&resumer, &coroutine);
    EXPECT(value == expected);
}

/* The threads take turns: the one whose turn it is resumes the coroutine, the others wait at the barrier. */
TRACED void *thread(void *number)
{
    for (long i = 0; i < rounds; i++) {
        if (i % THREADS == (long)number)
            resumes(i);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t id[THREADS];
    rounds = rounds_of(argc, argv, 2000);
    pthread_barrier_init(&barrier, NULL, THREADS);
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = malloc(STACK);
    coroutine.uc_stack.ss_size = STACK;
    makecontext(&coroutine, body, 0);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&id[i], NULL, thread, (void *)i);
    for (long i = 0; i < THREADS; i++)
        pthread_join(id[i], NULL);
    return finish();
}
