/*
 * Recursion as deep as each number that it reads from stdin says. Who is on the function may write three counts for each of
 * sixteen users, which the program prints afterwards: entered, right, wrong.
 */
#include "check.h"

#include <inttypes.h>

struct counts {
    int64_t entered[16], right[16], wrong[16];
};

TRACED int64_t down(int64_t number, struct counts *counts)
{
    if (number > 0)
        EXPECT(down(number - 1, counts) == number - 1);
    return number;
}

int main(void)
{
    static struct counts counts;
    int64_t number;
    while (scanf("%" SCNd64, &number) == 1) {
        memset(&counts, 0, sizeof counts);
        EXPECT(down(number, &counts) == number);
        for (int i = 0; i < 16; i++)
            printf("%" PRId64 " %" PRId64 " %" PRId64 " ", counts.entered[i], counts.right[i], counts.wrong[i]);
        puts("");
        fflush(stdout);
    }
    return finish();
}
