/* Functions with Microsoft's convention: rcx, rdx, r8, r9, 32 bytes of shadow space; rdi, rsi and xmm6 to xmm15 are kept. */
#include "check.h"

#define MS __attribute__((ms_abi))

TRACED MS long six(long a, long b, long c, long d, long e, long f) { return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f; }

TRACED MS double doubles(double a, long b, double c, double d, double e) { return a + (double)b + 2 * c + 3 * d + 4 * e; }

TRACED long system_v(long a, double b) { return a + (long)b; }

TRACED MS long crossing(long a, double b)
{
    return system_v(a, b) + 1; /* calls the other convention: must save rdi, rsi and ten vector registers */
}

TRACED long back(long a, double b) { return crossing(a, b) + 1; }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 300000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(six(i, 1, 2, 3, 4, 5) == i + 2 + 6 + 12 + 20 + 30);
        EXPECT(doubles(0.5, i, 1, 2, 3) == 20.5 + (double)i);
        EXPECT(crossing(i, 5.0) == i + 6);
        EXPECT(back(i, 5.0) == i + 7);
    }
    return finish();
}
