/* A shared library that is not traced for its own sake, only where the executable calls into it. */
#include "shapes.h"

__attribute__((noinline)) long library_leaf(long x)
{
    __asm__ volatile("" : "+r"(x));
    return 3 * x + 7;
}

long library_loop(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += library_leaf(i);
    return sum;
}
