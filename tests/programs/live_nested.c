/*
 * For each number that it reads from stdin, `outer` calls `between`, which calls `inner` twice, and then `inner`; prints what
 * comes out.
 */
#include "check.h"

#include <inttypes.h>

TRACED int64_t inner(int64_t x)
{
    return x + 1;
}

TRACED int64_t between(int64_t x)
{
    return inner(x) * inner(x + 1);
}

TRACED int64_t outer(int64_t x)
{
    return between(x) + inner(x);
}

int main(void)
{
    int64_t x;
    puts("ready");
    fflush(stdout);
    while (scanf("%" SCNd64, &x) == 1) {
        int64_t found = outer(x);
        EXPECT(found == (x + 1) * (x + 2) + x + 1);
        printf("%" PRId64 "\n", found);
        fflush(stdout);
    }
    return finish();
}
