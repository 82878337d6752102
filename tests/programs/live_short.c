/*
 * A function that is shorter than a jump, whose way to its thunk leads through bytes of the next one. Calls both for each line.
 */
#include "check.h"

TRACED int tiny(int x)
{
    return x + 1;
}

TRACED long sum(long n)
{
    long all = 0;
    for (long i = 0; i < n; i++)
        all += tiny((int)i);
    return all;
}

TRACED long other(long n)
{
    return 3 * n + sum(2);
}

int main(void)
{
    char line[16];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        EXPECT(sum(5) == 15 && other(1) == 6);
        puts("done");
        fflush(stdout);
    }
    return finish();
}
