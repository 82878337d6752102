/*
 * `load` at stdin loads zlib and calls a function of it three times. A thread beside forks a child at SIGUSR1, be it while that is
 * being loaded; the child waits until the process ends.
 */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int alive[2];
static pid_t child;

static void *fork_at_signal(void *set)
{
    int number;
    char byte;
    EXPECT(sigwait(set, &number) == 0);
    child = fork();
    if (child == 0) {
        close(alive[1]);
        _exit(read(alive[0], &byte, 1) != 0);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char line[16];
    int status = -1;
    sigset_t set;
    pthread_t thread;
    rounds_of(argc, argv, 1);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    EXPECT(pipe(alive) == 0);
    pthread_create(&thread, NULL, fork_at_signal, &set);
    puts("ready");
    while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "load\n") == 0) {
        void *library = dlopen("libz.so.1", RTLD_NOW);
        const char *(*version)(void) = (const char *(*)(void))dlsym(library, "zlibVersion");
        for (int i = 0; i < 3; i++)
            EXPECT(version()[0] == '1');
        puts("done");
    }
    pthread_join(thread, NULL);
    close(alive[1]);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    return finish();
}
