/* exec from a thread that is not the main one: the program starts over as a single thread and keeps its process id. */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>
#include "check.h"

static char **arguments;
static sem_t begun;

TRACED long work(long x) { return x + 1; }

TRACED void *executes(void *unused)
{
    work(1);
    sem_wait(&begun);
    execv("/proc/self/exe", arguments);
    return unused;
}

TRACED void *sleeps(void *unused)
{
    sem_post(&begun);
    pause();
    return unused;
}

int main(int argc, char **argv)
{
    rounds_of(argc, argv, 1);
    work(2);
    if (argc > 3) {
        puts("OK");
        return getpid() == atoi(argv[3]) ? 0 : 1;
    }
    char number[16];
    snprintf(number, sizeof number, "%d", getpid());
    arguments = (char *[]){argv[0], "1", "again", number, NULL};
    sem_init(&begun, 0, 0);
    pthread_t id[2];
    pthread_create(&id[0], NULL, sleeps, NULL);
    pthread_create(&id[1], NULL, executes, NULL);
    pthread_join(id[0], NULL);
    return 2;
}
