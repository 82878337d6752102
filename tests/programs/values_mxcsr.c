/* Rounding modes, sticky exception flags and precision control of both floating-point units pass through calls unchanged. */
#include <fenv.h>
#include <xmmintrin.h>
#include "check.h"

TRACED double divide(double a, double b) { return a / b; }

TRACED long double divide_long(long double a, long double b) { return a / b; }

TRACED void round_up(void) { _mm_setcsr((_mm_getcsr() & ~0x6000u) | 0x4000u); }

TRACED void round_nearest(void) { _mm_setcsr(_mm_getcsr() & ~0x6000u); }

TRACED unsigned read_mxcsr(void) { return _mm_getcsr(); }

TRACED unsigned read_control_word(void)
{
    unsigned short word;
    asm volatile("fnstcw %0" : "=m"(word));
    return word;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200000);
    unsigned control = read_control_word();
    for (long i = 1; i <= rounds; i++) {
        double x = (double)i;
        round_nearest();
        double nearest = divide(x, 3.0);
        round_up();
        double up = divide(x, 3.0);
        EXPECT(up >= nearest);
        EXPECT(i % 3 == 0 || up * 3.0 > x || up > nearest);
        _mm_setcsr(_mm_getcsr() & ~0x3fu);
        EXPECT((read_mxcsr() & 0x3f) == 0);
        divide(x, 0.0);
        EXPECT((read_mxcsr() & 0x3f) == 4); /* division by zero, and nothing else */
        EXPECT((read_mxcsr() & 0x6000) == 0x4000);
        EXPECT(divide_long(x, 2.0L) == x / 2.0L);
    }
    round_nearest();
    EXPECT(read_control_word() == control);
    return finish();
}
