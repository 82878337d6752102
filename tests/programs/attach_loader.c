/*
 * Waits with the loader's lock held, in a callback of dl_iterate_phdr, until a line arrives at stdin; with an argument, in
 * a thread beside the first one, which waits without it.
 */
#define _GNU_SOURCE
#include "check.h"

#include <link.h>
#include <pthread.h>
#include <unistd.h>

static int called;

static int wait_here(struct dl_phdr_info *info, size_t size, void *unused)
{
    char line[16];
    (void)info;
    (void)size;
    (void)unused;
    if (!called++) {
        puts("ready");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            exit(2);
    }
    return 0;
}

static void *iterate(void *unused)
{
    (void)unused;
    dl_iterate_phdr(wait_here, NULL);
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argv;
    pthread_t thread;
    if (argc > 1) {
        pthread_create(&thread, NULL, iterate, NULL);
        pthread_join(thread, NULL);
    } else {
        iterate(NULL);
    }
    printf("saw objects %d\n", called > 2);
    return 0;
}
