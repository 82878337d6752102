/* float _Complex shares one xmm register, double _Complex takes xmm0 and xmm1, for arguments and results alike. */
#include <complex.h>
#include "check.h"

TRACED float complex add_float_complex(float complex a, float complex b) { return a + b; }

TRACED double complex add_double_complex(double complex a, double complex b) { return a + b; }

TRACED double complex swap_parts(double complex z) { return cimag(z) + creal(z) * I; }

/* The ninth and tenth double are passed on the stack. */
TRACED double complex many(double complex a, double complex b, double complex c, double complex d, double complex e)
{
    return a + b + c + d + e;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 300000);
    for (long i = 0; i < rounds; i++) {
        float f = (float)(i % 512);
        double d = (double)i;
        float complex sum = add_float_complex(f + 2.0f * I, 1.0f - 3.0f * I);
        EXPECT(crealf(sum) == f + 1 && cimagf(sum) == -1);
        double complex wide = add_double_complex(d + 2.0 * I, 1.0 - 3.0 * I);
        EXPECT(creal(wide) == d + 1 && cimag(wide) == -1);
        double complex swapped = swap_parts(d + 7.0 * I);
        EXPECT(creal(swapped) == 7 && cimag(swapped) == d);
        double complex all = many(d + 1.0 * I, 2.0 + 3.0 * I, 4.0 + 5.0 * I, 6.0 + 7.0 * I, 8.0 + 9.0 * I);
        EXPECT(creal(all) == d + 20 && cimag(all) == 25);
    }
    return finish();
}
