/*
 * Faults of its own, caught by its own handler: each thousandth round reads where nothing is. Says what it has added up, how
 * many faults it has caught, and whether its choice for the signal is still its own. With a third argument it dies of one.
 */
#include <setjmp.h>
#include <unistd.h>
#include "check.h"

static sigjmp_buf out;
static volatile int caught;

TRACED long work(long x) { return x * 2; }

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    EXPECT(number == SIGSEGV && info->si_addr == (void *)0x123);
    caught++;
    siglongjmp(out, 1);
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000), sum = 0;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, found;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR1);
    EXPECT(sigaction(SIGSEGV, &action, NULL) == 0);
    for (long i = 0; i < rounds; i++) {
        sum += work(i);
        if (i % 1000 == 0 && !sigsetjmp(out, 1))
            *(volatile int *)0x123 = 1;
    }
    EXPECT(sigaction(SIGSEGV, NULL, &found) == 0);
    EXPECT(found.sa_sigaction == on_fault && sigismember(&found.sa_mask, SIGUSR1) == 1);
    EXPECT((found.sa_flags & ~0x04000000) == SA_SIGINFO); /* less SA_RESTORER, which is the C library's */
    EXPECT(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
    printf("%ld %d\n", sum, caught);
    if (argc > 2)
        *(volatile int *)0x456 = 1;
    return finish();
}
