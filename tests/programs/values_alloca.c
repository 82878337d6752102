/* Stack frames of a size only known at run time, calls between growing and using them, and over-aligned frames. */
#include <alloca.h>
#include <stdint.h>
#include "check.h"

TRACED long fill(unsigned char *bytes, long size)
{
    for (long i = 0; i < size; i++)
        bytes[i] = (unsigned char)i;
    return size;
}

TRACED long check(const unsigned char *bytes, long size)
{
    long wrong = 0;
    for (long i = 0; i < size; i++)
        wrong += bytes[i] != (unsigned char)i;
    return wrong;
}

TRACED long growing(long pieces)
{
    unsigned char *piece[16];
    long wrong = 0;
    for (long k = 0; k < pieces; k++) {
        piece[k] = alloca((size_t)(k * 24 + 8));
        fill(piece[k], k * 24 + 8);
    }
    for (long k = 0; k < pieces; k++)
        wrong += check(piece[k], k * 24 + 8);
    return wrong;
}

TRACED long variable_length(long n)
{
    unsigned char bytes[n];
    fill(bytes, n);
    return check(bytes, n);
}

TRACED long aligned_frame(long n)
{
    unsigned char bytes[64] __attribute__((aligned(256)));
    fill(bytes, 64);
    return check(bytes, 64) + (long)((uintptr_t)bytes & 255) + n;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 50000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(growing(5) == 0);
        EXPECT(variable_length(i % 300 + 1) == 0);
        EXPECT(aligned_frame(i) == i);
    }
    return finish();
}
