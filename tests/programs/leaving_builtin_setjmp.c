/* __builtin_setjmp and __builtin_longjmp: the compiler's own, five words, no library call to notice. */
#include "check.h"

static void *buffer[5];

TRACED void jumps(void) { __builtin_longjmp(buffer, 1); }

TRACED void between(int depth)
{
    if (depth == 0)
        jumps();
    else
        between(depth - 1);
}

TRACED int catches(int depth)
{
    if (__builtin_setjmp(buffer) == 0) {
        between(depth);
        return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 50000);
    for (long i = 0; i < rounds; i++)
        EXPECT(catches(3) == 1);
    return finish();
}
