/* Raw clone with a stack of its own: as a thread that libc knows nothing of, without thread-local storage of its own. */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

enum { STACK = 256 * 1024 };

TRACED long work(long x) { return x + 1; }

TRACED int body(void *result)
{
    long sum = 0;
    for (long i = 0; i < 1000; i++)
        sum += work(i);
    *(long *)result = sum;
    return 9;
}

TRACED int with_shared_memory(char *stack)
{
    long result = 0;
    int status;
    pid_t child = clone(body, stack + STACK, CLONE_VM | SIGCHLD, &result);
    waitpid(child, &status, 0);
    EXPECT(result == 500500);
    return WEXITSTATUS(status);
}

TRACED int with_own_memory(char *stack)
{
    long result = 0;
    int status;
    pid_t child = clone(body, stack + STACK, SIGCHLD, &result);
    waitpid(child, &status, 0);
    EXPECT(result == 0);
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 20);
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < rounds; i++) {
        EXPECT(with_shared_memory(stack) == 9);
        EXPECT(with_own_memory(stack) == 9);
    }
    return finish();
}
