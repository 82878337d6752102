/* Forks a child every two milliseconds that calls leaf() once, and calls it itself in between, until its input ends. */
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noipa)) long leaf(long n)
{
    return n * 3 + 1;
}

int main(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};

    puts("ready");
    fflush(stdout);
    while (poll(&input, 1, 2) == 0) {
        for (int i = 0; i < 1000; i++)
            leaf(i);
        pid_t child = fork();
        if (child == 0)
            _exit((int)(leaf(3) & 7));
        waitpid(child, 0, 0);
    }
    puts("OK");
    return 0;
}
