/*
 * Calls functions of doubles and floats with the numbers that it reads from stdin as bits: a line says how many there are, the
 * next ones what they are. Its own floating-point state is one that traps on everything but what is inexact, which it looks
 * for; whoever measures in between must neither trap nor leave a trace there.
 */
#include "check.h"

#include <inttypes.h>
#include <string.h>

static unsigned state(void)
{
    unsigned value;
    __asm__ volatile("stmxcsr %0" : "=m"(value));
    return value;
}

static void set_state(unsigned value)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(value));
}

/* Bits go in and out unchanged, those of signalling NaNs too. */
TRACED double of_double(double value, double other)
{
    __asm__ volatile("nopl 0(%%rax,%%rax)" : : "x"(other));
    return value;
}

TRACED float of_float(float value)
{
    __asm__ volatile("nopl 0(%%rax,%%rax)" : "+x"(value)); /* long enough for a jump */
    return value;
}

static void call_with(uint64_t bits)
{
    double value, given, other = 2.5;
    float narrow, back;
    uint32_t low = (uint32_t)(bits >> 32), found;
    uint64_t wide;
    memcpy(&value, &bits, sizeof value);
    memcpy(&narrow, &low, sizeof narrow);
    set_state(0x1000); /* divide by zero, overflow, underflow, denormal and invalid trap; inexact is masked */
    given = of_double(value, other);
    back = of_float(narrow);
    EXPECT(state() == 0x1000);
    set_state(0x1f80);
    memcpy(&wide, &given, sizeof wide);
    memcpy(&found, &back, sizeof found);
    EXPECT(wide == bits);
    EXPECT(found == low);
}

int main(void)
{
    long count;
    puts("ready");
    fflush(stdout);
    while (scanf("%ld", &count) == 1) {
        for (long i = 0; i < count; i++) {
            uint64_t bits;
            EXPECT(scanf("%" SCNx64, &bits) == 1);
            call_with(bits);
        }
        puts("done");
        fflush(stdout);
    }
    return finish();
}
