/* Floats and doubles as arguments and results: in registers, more than fit there, and mixed with integers. */
#include "check.h"

TRACED float add_floats(float a, float b) { return a + b; }

TRACED double add_doubles(double a, double b) { return a + b; }

TRACED double ten_doubles(double a, double b, double c, double d, double e, double f, double g, double h, double i,
                          double j)
{
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}

TRACED double mixed(int a, double b, long c, float d, short e, double f, unsigned g, double h, long i, long j, long k)
{
    return a + b + (double)c + d + e + f + g + h + (double)i + (double)j + (double)k;
}

TRACED double recursive(double x, int depth) { return depth == 0 ? x : recursive(x + 0.5, depth - 1) + 0.25; }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 300000);
    for (long i = 0; i < rounds; i++) {
        double x = (double)(i % 4096);
        EXPECT(add_floats((float)x, 0.5f) == (float)x + 0.5f);
        EXPECT(add_doubles(x, 1e-3) == x + 1e-3);
        EXPECT(ten_doubles(x, 1, 2, 3, 4, 5, 6, 7, 8, 9) == x + 330);
        EXPECT(mixed(1, x, 2, 0.5f, 3, 0.25, 4, 8, 16, 32, 64) == x + 130.75);
        EXPECT(recursive(x, 3) == x + 2.25);
    }
    return finish();
}
