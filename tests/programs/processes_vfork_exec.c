/* vfork and exec from four threads at once. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

static long rounds;

TRACED pid_t spawns(const char *program)
{
    pid_t child = vfork();
    if (child == 0) {
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    return child;
}

TRACED int waits(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

TRACED void *thread(void *unused)
{
    for (long i = 0; i < rounds; i++)
        EXPECT(WEXITSTATUS(waits(spawns(i & 1 ? "/bin/true" : "/bin/false"))) == !(i & 1));
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t id[4];
    rounds = rounds_of(argc, argv, 10);
    for (int i = 0; i < 4; i++)
        pthread_create(&id[i], NULL, thread, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(id[i], NULL);
    return finish();
}
