// Exceptions cross the depth at which recording is cut (--depth): what is called afterwards is not too deep.
#include "check.h"

TRACED static long request(long x) { return x + 1; }

TRACED static long deep(long depth)
{
    if (depth == 0)
        throw depth;
    return deep(depth - 1) + 1;
}

TRACED static long tries(long x)
{
    try {
        return deep(5);
    } catch (long) {
        return request(x);
    }
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 1000), sum = 0;
    for (long i = 0; i < rounds; i++)
        sum += i % 10 == 0 ? tries(i) : request(i);
    EXPECT(sum == rounds * (rounds + 1) / 2);
    return finish();
}
