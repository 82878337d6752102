/*
 * Waits for a byte at stdin on a stack that is not the thread's own, prints what it has read there, and goes back to its own one:
 * the first argument says whether the `first` thread does so or an`other` one, the second whether in a `coroutine` or in
 * a signal `handler` with a stack of its own. Both are small.
 *
 * `foreign` is there for remote calls.
 */
#include "check.h"

#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

enum { SMALL = 16384 };

static ucontext_t outside, inside;
static int in_handler;

__attribute__((noinline, used)) long foreign(long a, long b)
{
    return a + 10 * b;
}

static void wait_here(void)
{
    char byte = 0;
    long got;
    __asm__ volatile("syscall" : "=a"(got) : "a"(0L), "D"(0L), "S"(&byte), "d"(1L) : "rcx", "r11", "memory");
    printf("read %ld %c\n", got, byte);
}

static void handle(int number)
{
    (void)number;
    wait_here();
}

static void *run(void *unused)
{
    char *stack = malloc(SMALL);
    (void)unused;
    if (in_handler) {
        stack_t own = {.ss_sp = stack, .ss_size = SMALL};
        EXPECT(sigaltstack(&own, NULL) == 0);
        pthread_kill(pthread_self(), SIGUSR1);
        own.ss_flags = SS_DISABLE;
        EXPECT(sigaltstack(&own, NULL) == 0);
    } else {
        getcontext(&inside);
        inside.uc_stack.ss_sp = stack;
        inside.uc_stack.ss_size = SMALL;
        inside.uc_link = &outside;
        makecontext(&inside, wait_here, 0);
        swapcontext(&outside, &inside);
    }
    free(stack);
    puts("back");
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    rounds_of(1, argv, 1);
    sigaction(SIGUSR1, &action, NULL);
    in_handler = argc > 2 && strcmp(argv[2], "handler") == 0;
    puts("ready");
    if (argc > 1 && strcmp(argv[1], "other") == 0) {
        pthread_create(&thread, NULL, run, NULL);
        pthread_join(thread, NULL);
    } else {
        run(NULL);
    }
    return finish();
}
