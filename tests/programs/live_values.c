/*
 * Calls a function with each number that it reads from stdin, which the function gives back; prints how many there were.
 */
#include "check.h"

#include <inttypes.h>

TRACED int64_t gives_back(int64_t value)
{
    return value;
}

int main(void)
{
    int64_t value;
    long count = 0;
    puts("ready");
    fflush(stdout);
    while (scanf("%" SCNd64, &value) == 1) {
        EXPECT(gives_back(value) == value);
        count++;
    }
    printf("gives_back %ld\n", count);
    return finish();
}
