/* siglongjmp out of a SIGSEGV handler on an alternate stack, over the faulting traced frames. */
#include <setjmp.h>
#include "check.h"

static sigjmp_buf back;
static char alternate[64 * 1024] __attribute__((aligned(16)));

TRACED void escapes(int signal) { siglongjmp(back, signal); }

TRACED void on_fault(int signal) { escapes(signal); }

TRACED long faults(volatile long *pointer) { return *pointer; }

TRACED long passes(volatile long *pointer) { return faults(pointer) + 1; }

TRACED int survives(void)
{
    int came = sigsetjmp(back, 1);
    return came != 0 ? came : (int)passes(NULL);
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 5000), fine = 4;
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGSEGV, &action, NULL);
    for (long i = 0; i < rounds; i++) {
        EXPECT(survives() == SIGSEGV);
        EXPECT(passes(&fine) == 5);
    }
    return finish();
}
