/*
 * A signal handler that switches to another user thread in the middle of anything: preemptive threads in user space. Each
 * of them is continued at a point where another one may have been inside a hook.
 */
#include <sys/time.h>
#include <ucontext.h>
#include "check.h"

enum { TASKS = 4, STACK = 128 * 1024 };

static ucontext_t contexts[TASKS + 1];
static volatile int current, running, started;
static long wanted, results[TASKS], switches;

TRACED long leaf(long x) { return x + 1; }

TRACED long work(long depth) { return depth == 0 ? leaf(0) : work(depth - 1) + 1; }

TRACED void schedules(void)
{
    int from = current, to = from;
    do
        to = (to + 1) % TASKS;
    while (to != from && results[to] < 0);
    if (to == from)
        return;
    current = to;
    switches++;
    swapcontext(&contexts[from], &contexts[to]);
}

TRACED void on_tick(int signal)
{
    (void)signal;
    if (running)
        schedules();
}

TRACED void task(int number)
{
    long sum = 0;
    sigset_t all;
    sigfillset(&all);
    running = 1; /* not earlier: the context to be saved must be a task's */
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    for (long i = 0; i < wanted; i++)
        sum += work(5);
    sigprocmask(SIG_BLOCK, &all, NULL);
    EXPECT(sum == wanted * 6);
    results[number] = -1;
    for (int next = 0; next < TASKS; next++)
        if (results[next] == 0) {
            current = next;
            setcontext(&contexts[next]);
        }
    running = 0;
    setcontext(&contexts[TASKS]);
}

int main(int argc, char **argv)
{
    wanted = rounds_of(argc, argv, 200000);
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    for (int i = 0; i < TASKS; i++) {
        getcontext(&contexts[i]);
        /* swapcontext sets the mask before it changes stacks: a signal in between must wait for the task to begin. */
        sigfillset(&contexts[i].uc_sigmask);
        contexts[i].uc_stack.ss_sp = malloc(STACK);
        contexts[i].uc_stack.ss_size = STACK;
        makecontext(&contexts[i], (void (*)(void))task, 1, i);
    }
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    getcontext(&contexts[TASKS]);
    if (!started) {
        started = 1;
        setcontext(&contexts[0]);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("switches=%ld\n", switches);
    return finish();
}
