/*
 * Told by lines at stdin: `fork` makes a child that calls functions until it is told to end (by a byte in a pipe), and
 * counts the children that found something wrong; `exec` replaces a child by this program, which works and ends; `signals`
 * starts a timer whose handler calls functions. `end` ends the program.
 */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t ticks, wrong;
static int stop[2];

TRACED int leaf(int x)
{
    return x * 3 + 1;
}

TRACED int middle(int x)
{
    return leaf(x) + leaf(x + 1);
}

static void tick(int number)
{
    (void)number;
    ticks++;
    if (middle(ticks) != 6 * ticks + 5)
        wrong++;
}

TRACED int works(int rounds)
{
    int bad = 0;
    for (int x = 0; x < rounds; x++)
        bad += middle(x) != 6 * x + 5;
    return bad;
}

static void child(void)
{
    fd_set set;
    struct timeval none;
    for (;;) {
        if (works(100))
            _exit(3);
        FD_ZERO(&set);
        FD_SET(stop[0], &set);
        none = (struct timeval){0, 1000};
        if (select(stop[0] + 1, &set, NULL, NULL, &none) > 0)
            _exit(works(100) ? 3 : 7);
    }
}

int main(int argc, char **argv)
{
    char line[16];
    int status;
    if (argc > 1)
        return works(1000) ? 3 : 9;
    signal(SIGALRM, tick);
    puts("ready");
    fflush(stdout);
    for (;;) {
        /* read, not fgets: the timer's handler may come at any time, and reading goes on */
        ssize_t got = read(0, line, sizeof line - 1);
        if (got <= 0)
            return 2;
        line[got] = 0;
        if (!strcmp(line, "fork\n")) {
            if (pipe(stop))
                return 2;
            pid_t pid = fork();
            if (pid == 0)
                child();
            printf("forked %d\n", pid);
        } else if (!strcmp(line, "join\n")) {
            if (write(stop[1], "x", 1) != 1 || wait(&status) < 0)
                return 2;
            printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        } else if (!strcmp(line, "exec\n")) {
            pid_t pid = fork();
            if (pid == 0) {
                execl("/proc/self/exe", argv[0], "work", NULL);
                _exit(4);
            }
            if (waitpid(pid, &status, 0) != pid)
                return 2;
            printf("executed %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        } else if (!strcmp(line, "signals\n")) {
            struct itimerval time = {{0, 200}, {0, 200}};
            siginterrupt(SIGALRM, 0);
            setitimer(ITIMER_REAL, &time, NULL);
            puts("ticking");
        } else {
            break;
        }
        fflush(stdout);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    printf("wrong %d ticked %d\n", (int)wrong, ticks > 0);
    return wrong != 0;
}
