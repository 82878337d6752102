/* Nested functions find their parent's variables through r10, which no calling convention preserves. */
#include "check.h"

TRACED long apply(long (*function)(long), long value) { return function(value); }

TRACED long outer(long base, long n)
{
    long seen = 0;
    __attribute__((noipa)) long add(long x)
    {
        seen++;
        return x + base;
    }
    __attribute__((noipa)) long deep(long x)
    {
        __attribute__((noipa)) long inner(long y)
        {
            seen += 10;
            return y * base;
        }
        return x == 0 ? inner(n) : deep(x - 1) + 1;
    }
    long direct = add(n), through_pointer = apply(add, n), nested = deep(3);
    return direct + through_pointer + nested + seen;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200000);
    for (long i = 0; i < rounds; i++)
        EXPECT(outer(i, 7) == 2 * (i + 7) + (7 * i + 3) + 12);
    return finish();
}
