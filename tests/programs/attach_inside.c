/*
 * Threads that stand among the first bytes of functions, where a jump is about to be written:
 *
 * - `waits` begins with a system call, and waits in it;
 * - `faults` reads from a bad address with its second instruction; the handler of the signal waits, then mends the register
 *   and returns to that instruction;
 * - `spins` is a loop from its first byte on, and runs until it is told to end.
 *
 * A line at stdin ends all of it. Each function adds one to its argument's number when it is called again.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* read(rdi, rsi, rdx) */
__asm__(".text\n.globl waits\n.type waits, @function\n"
        "waits:\n\t.cfi_startproc\n\txor %eax, %eax\n\tsyscall\n\tnop\n\tmov %rax, %rcx\n\tlea 1(%rcx), %rax\n\tret\n\t.cfi_endproc\n"
        ".size waits, . - waits\n"
        ".globl faults\n.type faults, @function\n"
        "faults:\n\t.cfi_startproc\n\tnop\n\tmov (%rdi), %eax\n\tnop\n\tnop\n\tinc %eax\n\tret\n\t.cfi_endproc\n"
        ".size faults, . - faults\n"
        ".globl spins\n.type spins, @function\n"
        "spins:\n\t.cfi_startproc\n\tpause\n\tcmpl $0, (%rdi)\n\tje spins\n\tmov (%rdi), %eax\n\tinc %eax\n\tret\n\t.cfi_endproc\n"
        ".size spins, . - spins\n");

extern int faults(const int *number), spins(const int *stop);
extern long waits(int file, char *byte, long size);

static int number = 41, stop, go[2], held[2];
static volatile int inside;

static void mend(int signal_number, siginfo_t *info, void *context)
{
    char byte;
    (void)signal_number;
    (void)info;
    inside = 1;
    if (read(held[0], &byte, 1) == 1)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RDI] = (greg_t)&number;
}

static void *wait_in(void *result)
{
    char byte;
    *(long *)result = waits(go[0], &byte, 1);
    return NULL;
}

static void *fault_in(void *result)
{
    *(long *)result = faults((const int *)16);
    return NULL;
}

static void *spin_in(void *result)
{
    *(long *)result = spins(&stop);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO};
    pthread_t threads[3];
    long results[3] = {0};
    char line[16];
    sigaction(SIGSEGV, &action, NULL);
    if (pipe(go) || pipe(held))
        return 2;
    pthread_create(&threads[0], NULL, wait_in, &results[0]);
    pthread_create(&threads[1], NULL, fault_in, &results[1]);
    pthread_create(&threads[2], NULL, spin_in, &results[2]);
    while (!inside)
        usleep(1000);
    usleep(50000);
    puts("ready");
    fflush(stdout);
    for (;;) {
        if (!fgets(line, sizeof line, stdin))
            return 2;
        if (line[0] == 'c') { /* call all of them anew, while the first calls are where they are */
            int one = 1;
            if (write(go[1], "x", 1) != 1)
                return 2;
            printf("again %d %d\n", faults(&number), spins(&one));
            fflush(stdout);
            continue;
        }
        break;
    }
    stop = 1;
    if (write(held[1], "x", 1) != 1 || write(go[1], "x", 1) != 1)
        return 2;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("results %ld %ld %ld\n", results[0], results[1], results[2]);
    return 0;
}
