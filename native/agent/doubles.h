/* Doubles by their bits (IEEE 754-2008, section 3.4): the agent has no vector registers. */
#ifndef SHADOWGRAPH_DOUBLES_H
#define SHADOWGRAPH_DOUBLES_H

#include <stdint.h>

#define SG_SIGN_BIT (1ull << 63)
#define SG_INFINITY_BITS 0x7ff0000000000000ull

static inline int sg_is_nan(uint64_t bits)
{
    return (bits & ~SG_SIGN_BIT) > SG_INFINITY_BITS;
}

/* A float as a double. Every float is one, those below its normal range too. */
static inline uint64_t sg_widen(uint32_t bits)
{
    uint64_t sign = (uint64_t)(bits >> 31) << 63, fraction = bits & 0x7fffff;
    int exponent = bits >> 23 & 0xff;
    if (exponent == 0xff)
        return sign | SG_INFINITY_BITS | fraction << 29;
    if (!exponent) {
        if (!fraction)
            return sign;
        int shift = __builtin_clz((uint32_t)fraction) - 8;
        exponent = 1 - shift;
        fraction = fraction << shift & 0x7fffff;
    }
    return sign | (uint64_t)(exponent + 1023 - 127) << 52 | fraction << 29;
}

#endif
