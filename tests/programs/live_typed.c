/*
 * Calls functions whose narrow arguments and results lie in registers with anything in the upper halves, and one with arguments on
 * the stack, for each number that it reads from stdin.
 */
#include "check.h"

#include <inttypes.h>

/* The low bytes of the number, as all these types; what the caller has left above them is garbage on purpose. */
TRACED int64_t narrow(int64_t value)
{
    return value ^ 0x5a5a000000000000;
}

TRACED int64_t many(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f, int64_t g, int64_t h)
{
    return a + b + c + d + e + f + g - h;
}

int main(void)
{
    int64_t value;
    long count = 0;
    puts("ready");
    fflush(stdout);
    while (scanf("%" SCNd64, &value) == 1) {
        EXPECT(narrow(value) == (value ^ 0x5a5a000000000000));
        EXPECT(many(1, 2, 3, 4, 5, 6, value, value) == 21);
        count++;
    }
    printf("typed %ld\n", count);
    return finish();
}
