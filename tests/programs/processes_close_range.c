/* A program that closes every descriptor it does not know: nothing of the tracer may depend on one. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "check.h"

TRACED long work(long x) { return x + 1; }

TRACED void closes_all(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 3, ~0U, 0) == 0)
        return;
#endif
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
}

/* Descriptors a program was started with, beside the three of everybody and the one that reads the folder. */
TRACED int foreign_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.' && atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(folder);
    closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    printf("foreign descriptors %d\n", foreign_descriptors());
    for (long i = 0; i < rounds; i++) {
        if (i % (rounds / 2 + 1) == 5)
            closes_all();
        EXPECT(work(i) == i + 1);
    }
    return finish();
}
