/*
 * One set of twins: compiled with -DTWIN=plain, and again with -DTWIN=traced and whatever instrumentation a tracer wants.
 * The empty assembly keeps compilers from merging, unrolling or replacing calls: each call in the source is a call.
 */
#include "shapes.h"

#define PASTE(twin, name) twin##_##name
#define NAMED(twin, name) PASTE(twin, name)
#define SHAPE(name) __attribute__((noinline, aligned(64))) NAMED(TWIN, name)
#define CALL(name) NAMED(TWIN, name)
#define KEEP(value) __asm__ volatile("" : "+r"(value))

long SHAPE(leaf)(long x)
{
    KEEP(x);
    return 3 * x + 7;
}

long SHAPE(fib)(long n)
{
    if (n < 2)
        return n;
    long first = CALL(fib)(n - 1);
    KEEP(first);
    long second = CALL(fib)(n - 2);
    KEEP(second);
    return first + second;
}

#define LINK(name, next)                                                                                                   \
    long SHAPE(name)(long x)                                                                                               \
    {                                                                                                                      \
        long result = CALL(next)(x + 1);                                                                                   \
        KEEP(result);                                                                                                      \
        return result + x;                                                                                                 \
    }

long CALL(chain2)(long), CALL(chain3)(long), CALL(chain4)(long), CALL(chain5)(long), CALL(chain6)(long), CALL(chain7)(long),
    CALL(chain8)(long), CALL(target)(long);
LINK(chain, chain2)
LINK(chain2, chain3)
LINK(chain3, chain4)
LINK(chain4, chain5)
LINK(chain5, chain6)
LINK(chain6, chain7)
LINK(chain7, chain8)
long SHAPE(chain8)(long x)
{
    KEEP(x);
    return x;
}

#define LEAF(name, number)                                                                                                 \
    long SHAPE(name)(long x)                                                                                               \
    {                                                                                                                      \
        KEEP(x);                                                                                                           \
        return 3 * x + number;                                                                                             \
    }

LEAF(turn1, 1)
LEAF(turn2, 2)
LEAF(turn3, 3)
LEAF(turn4, 4)
LEAF(turn5, 5)
LEAF(turn6, 6)
LEAF(turn7, 7)
LEAF(turn8, 8)

long SHAPE(turns)(long x)
{
    long sum = CALL(turn1)(x);
    sum += CALL(turn2)(x);
    sum += CALL(turn3)(x);
    sum += CALL(turn4)(x);
    sum += CALL(turn5)(x);
    sum += CALL(turn6)(x);
    sum += CALL(turn7)(x);
    sum += CALL(turn8)(x);
    return sum;
}

/* Its first instruction is the call: where five bytes are displaced, a call is among them. */
long SHAPE(forward)(long x)
{
    long result = CALL(target)(x);
    KEEP(result);
    return result + 1;
}

long SHAPE(tail)(long x)
{
    KEEP(x);
    return CALL(target)(x + 1); /* at -O2 a jump */
}

long SHAPE(target)(long x)
{
    KEEP(x);
    return x;
}

long SHAPE(loop)(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += CALL(leaf)(i);
    return sum;
}

long SHAPE(outer_loop)(long n)
{
    long sum = CALL(loop)(n);
    KEEP(sum);
    return sum;
}
