/*
 * Children, one after the other, and two levels deep, that call a function and end; the parent sums up what they say they
 * have called by their exit status, and prints it with its own calls. The first argument says how many children.
 */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

TRACED int step(int x)
{
    return x + 1;
}

INLINED int status_of(pid_t pid)
{
    int status = 0;
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    long count = rounds_of(argc, argv, 50), calls = 0;
    for (long i = 0; i < count; i++) {
        calls++;
        EXPECT(step((int)i) == i + 1);
        pid_t child = fork();
        if (child == 0) {
            int own = 0;
            for (; own <= i % 4; own++)
                EXPECT(step(own) == own + 1);
            if (i % 10 == 0) {
                pid_t grandchild = fork();
                if (grandchild == 0)
                    _exit(step(0));
                own += status_of(grandchild);
            }
            _exit(own);
        }
        calls += status_of(child);
    }
    printf("step %ld\n", calls);
    return finish();
}
