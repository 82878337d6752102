/*
 * Calls a function with each number that it reads from stdin and says what it gives back; a signal (SIGUSR1) leaves the call by
 * siglongjmp, wherever it stands.
 */
#include "check.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf before_call;

static void leave(int signal)
{
    (void)signal;
    siglongjmp(before_call, 1);
}

TRACED int64_t visited(int64_t number)
{
    return number + 1;
}

int main(void)
{
    int64_t number;
    signal(SIGUSR1, leave);
    while (scanf("%" SCNd64, &number) == 1) {
        if (sigsetjmp(before_call, 1) == 0)
            printf("%" PRId64 "\n", visited(number));
        else
            puts("left");
        fflush(stdout);
    }
    return finish();
}
