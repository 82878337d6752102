/* __int128 in register pairs and on the stack; the result takes rax and rdx. */
#include "check.h"

typedef unsigned __int128 wide;

TRACED wide multiply(unsigned long a, unsigned long b) { return (wide)a * b; }

TRACED wide add_wide(wide a, wide b) { return a + b; }

/* Five register words come first, so c must go to the stack as a whole although one register is left. */
TRACED wide split(long a, wide b, long c, long d, wide e, wide f) { return b + e + f + (wide)(a + c + d); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 400000);
    const wide high = (wide)0x0123456789abcdefUL << 64;
    for (long i = 0; i < rounds; i++) {
        wide product = multiply(~0UL - (unsigned long)i, 3);
        EXPECT(product == (wide)(~0UL - (unsigned long)i) * 3);
        EXPECT(add_wide(high + ~0UL, (wide)i + 1) == high + ~0UL + (wide)i + 1);
        EXPECT(split(1, high, 2, 3, high, (wide)i) == high + high + (wide)i + 6);
    }
    return finish();
}
