/* Sixty-four threads at once, calling the same functions, each with a recursion of its own. */
#include <pthread.h>
#include "check.h"

static long rounds;

TRACED long leaf(long x) { return x ^ 5; }

TRACED long tree(long depth) { return depth == 0 ? leaf(1) : tree(depth - 1) + tree(depth - 1); }

TRACED void *thread(void *number)
{
    long sum = 0;
    for (long i = 0; i < rounds; i++)
        sum += tree(6);
    EXPECT(sum == rounds * 64 * 4);
    return number;
}

int main(int argc, char **argv)
{
    pthread_t id[64];
    rounds = rounds_of(argc, argv, 200);
    for (long i = 0; i < 64; i++)
        pthread_create(&id[i], NULL, thread, (void *)i);
    for (long i = 0; i < 64; i++) {
        void *number;
        pthread_join(id[i], &number);
        EXPECT(number == (void *)i);
    }
    return finish();
}
