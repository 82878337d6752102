/*
 * A recursion that ends in many ways, for handlers that keep an instance of each of its calls. A line at stdin says how, and
 * how deep; the answer is what handlers have written: entered, right, wrong, which forked children share.
 */
#include "check.h"

#include <cinttypes>
#include <csetjmp>
#include <csignal>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

struct counts {
    int64_t entered, right, wrong;
};

enum how { RETURNS, THROWS, JUMPS, ENDS_THREAD, IS_KILLED, FORKS, IS_INTERRUPTED };

static jmp_buf place;

TRACED int64_t down(int64_t number, counts *counts, int64_t depth, int how)
{
    if (depth > 0) {
        EXPECT(down(number + 1, counts, depth - 1, how) == number + 1);
        return number;
    }
    switch (how) {
    case THROWS:
        throw 1;
    case JUMPS:
        longjmp(place, 1);
    case ENDS_THREAD:
        pthread_exit(nullptr);
    case IS_KILLED:
        kill(getpid(), SIGKILL);
        break;
    case FORKS: /* the child returns through all of these calls, too */
        if (pid_t child = fork())
            waitpid(child, nullptr, 0);
        break;
    default:
        break;
    }
    return number;
}

static counts *seen;
static int64_t depth;

static void *in_thread(void *)
{
    down(1000, seen, depth, ENDS_THREAD);
    return nullptr;
}

static sigjmp_buf interrupted_at;

static void leave(int)
{
    siglongjmp(interrupted_at, 1);
}

/* Calls without end, until a signal leaves them wherever they are; so many times. */
static void interrupted(int64_t rounds)
{
    signal(SIGALRM, leave);
    for (volatile int64_t round = 0; round < rounds; round = round + 1) {
        itimerval soon = {{0, 0}, {0, 50 + round * 7 % 100}};
        if (sigsetjmp(interrupted_at, 1))
            continue;
        setitimer(ITIMER_REAL, &soon, nullptr);
        for (;;)
            down(6000, seen, 3, RETURNS);
    }
}

static void run(int how)
{
    pid_t own = getpid();
    if (how == THROWS) {
        try {
            down(2000, seen, depth, how);
        } catch (int) {
        }
    } else if (how == JUMPS) {
        if (!setjmp(place))
            down(3000, seen, depth, how);
    } else if (how == ENDS_THREAD) {
        pthread_t thread;
        pthread_create(&thread, nullptr, in_thread, nullptr);
        pthread_join(thread, nullptr);
    } else if (how == IS_INTERRUPTED) {
        interrupted(depth);
    } else if (how == IS_KILLED) {
        pid_t child = fork();
        if (!child)
            down(4000, seen, depth, how);
        waitpid(child, nullptr, 0);
    } else {
        EXPECT(down(5000, seen, depth, how) == 5000);
        if (getpid() != own)
            _exit(0);
    }
}

int main()
{
    void *memory = mmap(nullptr, sizeof(counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seen = static_cast<counts *>(memory);
    int how;
    while (scanf("%d %" SCNd64, &how, &depth) == 2) {
        *seen = {};
        run(how);
        printf("%" PRId64 " %" PRId64 " %" PRId64 "\n", seen->entered, seen->right, seen->wrong);
        fflush(stdout);
    }
    return finish();
}
