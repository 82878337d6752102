/* Mutual tail recursion, ten million calls deep in a constant piece of stack. */
#include "check.h"

long is_odd(long n);

TRACED long is_even(long n)
{
    if (n == 0)
        return 1;
    return is_odd(n - 1);
}

TRACED long is_odd(long n)
{
    if (n == 0)
        return 0;
    return is_even(n - 1);
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 10000000);
    EXPECT(is_even(rounds) == (rounds % 2 == 0));
    return finish();
}
