/*
 * setjmp and longjmp over traced frames: in a loop at the same stack depth, from deep recursion, and from main's own frame;
 * what is left behind must be recognised and must not pile up.
 */
#include <setjmp.h>
#include "check.h"

static jmp_buf back;

TRACED void jumps(int value) { longjmp(back, value); }

TRACED void between(int value) { jumps(value); }

TRACED void deep(int depth)
{
    if (depth == 0)
        between(7);
    deep(depth - 1);
}

TRACED int same_depth(int value)
{
    int came = setjmp(back);
    if (came != 0)
        return came;
    between(value);
    return -1;
}

TRACED int from_recursion(int depth)
{
    int came = setjmp(back);
    if (came == 0)
        deep(depth);
    return came;
}

TRACED int after(int x) { return x + 1; }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (int i = 1; i <= rounds; i++) {
        EXPECT(same_depth(i) == i);
        EXPECT(after(i) == i + 1);
    }
    for (int i = 0; i < rounds / 100; i++)
        EXPECT(from_recursion(50) == 7);
    volatile long jumped = 0;
    if (setjmp(back) < 5 && jumped < rounds) {
        jumped++;
        jumps(3);
    }
    EXPECT(jumped == rounds);
    return finish();
}
