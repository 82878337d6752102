/* A recursion a million calls deep, twice. Whatever cannot be hooked for want of room must be counted as missed. */
#include <pthread.h>
#include <sys/mman.h>
#include "check.h"

static long rounds;

TRACED long descend(long depth)
{
    if (depth == 0)
        return 0;
    return descend(depth - 1) + 1;
}

TRACED void *thread(void *unused)
{
    EXPECT(descend(rounds) == rounds);
    EXPECT(descend(rounds) == rounds);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_attr_t attributes;
    pthread_t id;
    rounds = rounds_of(argc, argv, 1000000);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512UL << 20);
    pthread_create(&id, &attributes, thread, NULL);
    pthread_join(id, NULL);
    return finish();
}
