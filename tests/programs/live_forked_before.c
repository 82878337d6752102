/*
 * Forks at "fork"; "here N" and "there N" have the process and its child call a function N times each. Each line is answered by one.
 * An empty line ends both; the child's status is 0 if it has seen the right results.
 */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

TRACED long visited(long number)
{
    return number + 1;
}

static void visit(long times)
{
    for (long i = 0; i < times; i++)
        EXPECT(visited(i) == i + 1);
}

static void serve(int from, int to)
{
    long times;
    while (read(from, &times, sizeof times) == sizeof times) {
        visit(times);
        EXPECT(write(to, "", 1) == 1);
    }
}

int main(void)
{
    char line[64], answer;
    long times;
    int to_child[2], from_child[2], status = -1;
    pid_t child = 0;
    EXPECT(!pipe(to_child) && !pipe(from_child));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && line[0] != '\n') {
        if (sscanf(line, "here %ld", &times) == 1) {
            visit(times);
        } else if (sscanf(line, "there %ld", &times) == 1) {
            EXPECT(write(to_child[1], &times, sizeof times) == sizeof times);
            EXPECT(read(from_child[0], &answer, 1) == 1);
        } else if (!(child = fork())) {
            close(to_child[1]);
            serve(to_child[0], from_child[1]);
            _exit(failures != 0);
        }
        puts("done");
        fflush(stdout);
    }
    close(to_child[1]);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    return finish();
}
