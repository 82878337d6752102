/*
 * Calls in flight when a recording stops at a limit, and later: the stop happens within `returns`, which returns;
 * `main` never does; `late` begins behind the stop and never returns either. All calls there are: ROUNDS + 3.
 */
#include "check.h"

#define ROUNDS 200000

TRACED int leaf(int value)
{
    return value + 1;
}

TRACED int returns(int rounds)
{
    int value = 0;
    for (int i = 0; i < rounds; i++)
        value = leaf(value);
    return value;
}

TRACED void late(int value)
{
    printf("%d\n", value);
    exit(value == ROUNDS ? 3 : 1);
}

int main(void)
{
    late(returns(ROUNDS));
}
