/* long double travels in memory and comes back on the x87 stack; a complex one comes back in st0 and st1. */
#include <complex.h>
#include "check.h"

TRACED long double add_long(long double a, long double b) { return a + b; }

TRACED long double complex multiply_long(long double complex a, long double complex b) { return a * b; }

TRACED long double sum_three(long double a, int b, long double c, double d, long double e) { return a + b + c + d + e; }

TRACED long double powers(long double x, int n) { return n == 0 ? 1.0L : x * powers(x, n - 1); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200000);
    const long double tiny = 1.0L / (1LL << 60);
    for (long i = 0; i < rounds; i++) {
        long double x = (long double)(i % 1000);
        EXPECT(add_long(x, tiny) == x + tiny);
        EXPECT(sum_three(x, 2, tiny, 0.5, 1.0L) == x + 2 + tiny + 0.5 + 1.0L);
        long double complex z = multiply_long(x + 1.0L * I, 2.0L - 3.0L * I);
        EXPECT(creall(z) == 2 * x + 3 && cimagl(z) == 2 - 3 * x);
        EXPECT(powers(2.0L, 5) == 32.0L);
    }
    return finish();
}
