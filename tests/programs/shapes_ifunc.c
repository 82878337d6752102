/*
 * An indirect function: the resolver runs while the program is being relocated, before it has thread-local storage
 * of its own; both the resolver and the two implementations are functions to be seen, the symbol itself is none.
 */
#include "check.h"

TRACED long fast(long x) { return x + 1; }

TRACED long slow(long x) { return x + 1; }

static long (*resolve(void))(long)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse2") ? fast : slow;
}

long chosen(long x) __attribute__((ifunc("resolve")));

TRACED long through_pointer(long (*function)(long), long x) { return function(x); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(chosen(i) == i + 1);
        EXPECT(through_pointer(chosen, i) == i + 1);
    }
    return finish();
}
