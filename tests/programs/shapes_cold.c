/* Functions whose unlikely part gcc moves to .text.unlikely as name.cold: a part, not a function; it is jumped to. */
#include "check.h"

static volatile long complaints;

__attribute__((cold)) TRACED void complain(long x) { complaints += x; }

TRACED long split(long x)
{
    if (__builtin_expect(x % 100 == 0, 0)) {
        complain(1);
        complain(2);
        return -x;
    }
    return x * 3;
}

/* The cold part is left by a tail call. */
TRACED void split_tail(long x)
{
    if (__builtin_expect(x % 50 == 7, 0)) {
        complain(4);
        complain(x);
        return;
    }
    complaints += x;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(split(i) == (i % 100 == 0 ? -i : i * 3));
        split_tail(i);
    }
    return finish();
}
