// A function that always throws, caught in its caller, very often: the frames left behind must not pile up.
#include "check.h"

extern "C" {
TRACED void always_throws(long x) { throw x; }

TRACED long catches(long x)
{
    try {
        always_throws(x);
    } catch (long value) {
        return value;
    }
    return -1;
}
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200000);
    for (long i = 0; i < rounds; i++)
        EXPECT(catches(i) == i);
    return finish();
}
