/*
 * Tail calls of a few links: every function of a chain is seen, each within the one that jumped to it, whichever of them
 * are traced; by pointer, by conditional jump and to an imported function.
 */
#include "check.h"

TRACED long third(long x) { return x + 3; }

TRACED long second(long x) { return third(x * 2); }

TRACED long first(long x) { return second(x + 1); }

TRACED long by_pointer(long (*function)(long), long x) { return function(x); }

TRACED long sometimes(long x)
{
    if (x % 2 == 0)
        return third(x);
    return -x;
}

TRACED size_t imported(const char *text) { return strlen(text); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200000);
    char text[8] = "abc";
    for (long i = 0; i < rounds; i++) {
        EXPECT(first(i) == 2 * i + 5);
        EXPECT(by_pointer(first, i) == 2 * i + 5);
        EXPECT(sometimes(i) == (i % 2 == 0 ? i + 3 : -i));
        text[i & 1] = (char)('a' + (i & 3));
        EXPECT(imported(text) == 3);
    }
    return finish();
}
