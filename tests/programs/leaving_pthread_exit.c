/* pthread_exit from depth, with cleanup handlers and destructors of thread-specific data that call traced functions. */
#include <pthread.h>
#include "check.h"

static pthread_key_t key;
static long cleaned, destroyed;

TRACED void note(long *counter) { __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED); }

TRACED void cleanup(void *counter) { note(counter); }

TRACED void destructor(void *counter) { note(counter); }

TRACED void leaves(int depth)
{
    if (depth == 0)
        pthread_exit((void *)42);
    pthread_cleanup_push(cleanup, &cleaned);
    leaves(depth - 1);
    pthread_cleanup_pop(0);
}

TRACED void *thread(void *unused)
{
    pthread_setspecific(key, &destroyed);
    leaves(4);
    return unused;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 500);
    pthread_key_create(&key, destructor);
    for (long i = 0; i < rounds; i++) {
        pthread_t id;
        void *result;
        pthread_create(&id, NULL, thread, NULL);
        pthread_join(id, &result);
        EXPECT(result == (void *)42);
    }
    EXPECT(cleaned == 4 * rounds && destroyed == rounds);
    return finish();
}
