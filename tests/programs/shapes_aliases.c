/* One function with three names, one of them weak: it is one function, hooked once, whichever name calls it. */
#include "check.h"

TRACED long real_name(long x) { return x + 1; }
long second_name(long x) __attribute__((alias("real_name")));
long weak_name(long x) __attribute__((weak, alias("real_name")));

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(real_name(i) == i + 1);
        EXPECT(second_name(i) == i + 1);
        EXPECT(weak_name(i) == i + 1);
    }
    return finish();
}
