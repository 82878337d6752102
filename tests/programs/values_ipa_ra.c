/*
 * Static functions whose callers know which registers they leave alone (-fipa-ra, part of -O2): the caller keeps live
 * values in rcx, rsi, r8 to r11 and the vector registers across the call.
 */
#include "check.h"

#define KNOWN static __attribute__((noinline, noclone))

static volatile long sink;

KNOWN void touch_little(long x) { sink = x; }

KNOWN long leaf(long x)
{
    sink = x;
    return x ^ 1;
}

KNOWN double leaf_double(double x)
{
    sink = (long)x;
    return x * 2;
}

/* So many values are live over the calls that a compiler which knows the callees uses caller-saved registers. */
TRACED long many_live(long a, long b, long c, long d, long e, long f)
{
    long g = a * b, h = b * c, i = c * d, j = d * e, k = e * f, l = f * a;
    touch_little(1);
    long first = leaf(g);
    touch_little(2);
    return a + b + c + d + e + f + g + h + i + j + k + l + first;
}

TRACED double vectors_live(double a, double b, double c, double d)
{
    double p = a * b, q = b * c, r = c * d, s = d * a;
    double first = leaf_double(1.5);
    touch_little(3);
    return a + b + c + d + p + q + r + s + first;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 300000);
    for (long n = 0; n < rounds; n++) {
        long x = n % 1000;
        long g = x * 2;
        EXPECT(many_live(x, 2, 3, 4, 5, 6) == x + 20 + g + 6 + 12 + 20 + 30 + 6 * x + (g ^ 1));
        double y = (double)x;
        EXPECT(vectors_live(y, 2, 3, 4) == y + 9 + 2 * y + 6 + 12 + 4 * y + 3);
    }
    return finish();
}
