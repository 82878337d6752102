/* pthread_cancel of a thread that waits in a traced function, at a cancellation point and asynchronously. */
#include <pthread.h>
#include <unistd.h>
#include "check.h"

static long cleaned;
static int ready[2];

TRACED void cleanup(void *unused)
{
    (void)unused;
    __atomic_add_fetch(&cleaned, 1, __ATOMIC_RELAXED);
}

TRACED void waits(void)
{
    if (write(ready[1], "", 1) != 1)
        abort();
    for (;;)
        pause();
}

TRACED void spins(void)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    if (write(ready[1], "", 1) != 1)
        abort();
    for (;;)
        asm volatile("pause");
}

TRACED void *thread(void *spinning)
{
    pthread_cleanup_push(cleanup, NULL);
    if (spinning)
        spins();
    waits();
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200);
    if (pipe(ready) != 0)
        return 2;
    for (long i = 0; i < 2 * rounds; i++) {
        pthread_t id;
        void *result;
        char byte;
        pthread_create(&id, NULL, thread, i & 1 ? &cleaned : NULL);
        if (read(ready[0], &byte, 1) != 1)
            return 2;
        pthread_cancel(id);
        pthread_join(id, &result);
        EXPECT(result == PTHREAD_CANCELED);
    }
    EXPECT(cleaned == 2 * rounds);
    return finish();
}
