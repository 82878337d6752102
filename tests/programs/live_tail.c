/*
 * Calls `first` with each number that it reads from stdin, and `first` ends in a tail call of `second`. Both are given a log, in
 * which whoever is on them may write; the program prints it after each call, a line of numbers. Built with -O2 or more.
 */
#include "check.h"

#include <inttypes.h>

struct log {
    int64_t count;
    int64_t entries[1024];
};

TRACED int64_t second(int64_t number, struct log *log)
{
    log->entries[log->count++] = 0; /* the function itself */
    return number * 2;
}

TRACED int64_t first(int64_t number, struct log *log)
{
    return second(number + 1, log);
}

int main(void)
{
    static struct log log;
    int64_t number;
    while (scanf("%" SCNd64, &number) == 1) {
        log.count = 0;
        EXPECT(first(number, &log) == (number + 1) * 2);
        for (int64_t i = 0; i < log.count; i++)
            printf("%" PRId64 " ", log.entries[i]);
        puts("");
        fflush(stdout);
    }
    return finish();
}
