/*
 * Calls a function with each number that it reads from stdin and with a log, in which whoever is on the function may
 * write; prints the log after each call, a line of numbers.
 */
#include "check.h"

#include <inttypes.h>

struct log {
    int64_t count;
    int64_t entries[1024];
};

TRACED int64_t logged(int64_t number, struct log *log)
{
    log->entries[log->count++] = 0; /* the function itself */
    return number + 1;
}

int main(void)
{
    static struct log log;
    int64_t number;
    while (scanf("%" SCNd64, &number) == 1) {
        log.count = 0;
        EXPECT(logged(number, &log) == number + 1);
        for (int64_t i = 0; i < log.count; i++)
            printf("%" PRId64 " ", log.entries[i]);
        puts("");
        fflush(stdout);
    }
    return finish();
}
