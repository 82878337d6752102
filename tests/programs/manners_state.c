/*
 * Prints everything that a program inherits or can ask about itself, one line each: the same with and without a tracer.
 * Left out is what differs from run to run (addresses, pids, times). Without arguments; further ones are printed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

extern char **environ;
static int first_errno;

__attribute__((noinline)) static void text_lists(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        printf("argument %d %s\n", i, argv[i]);
    for (char **entry = environ; *entry; entry++)
        printf("environment %s\n", *entry);
}

__attribute__((noinline)) static void files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder));) {
        int number = atoi(entry->d_name);
        char target[4096] = "";
        if (entry->d_name[0] == '.' || number == dirfd(folder))
            continue;
        if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) < 0)
            continue;
        struct stat status;
        fstat(number, &status);
        int kind = status.st_mode & S_IFMT; /* numbers of pipes differ from run to run */
        printf("file %d flags %#x %#x %s\n", number, fcntl(number, F_GETFD), fcntl(number, F_GETFL),
               kind == S_IFIFO ? "pipe" : target);
    }
    closedir(folder);
}

__attribute__((noinline)) static void status_lines(void)
{
    static const char *const wanted[] = {
        "Name", "Umask", "State", "TracerPid", "Uid", "Gid", "Groups", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn",
        "SigCgt", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters",
        "Cpus_allowed_list", "CoreDumping", "THP_enabled",
    };
    char line[4096];
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0 && line[strlen(wanted[i])] == ':')
                printf("status %s", line);
    fclose(file);
}

__attribute__((noinline)) static void limits(void)
{
    for (int kind = 0; kind < RLIM_NLIMITS; kind++) {
        struct rlimit limit;
        getrlimit(kind, &limit);
        printf("limit %d %lu %lu\n", kind, limit.rlim_cur, limit.rlim_max);
    }
}

__attribute__((noinline)) static void signals(void)
{
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0)
            printf("signal %d handler %p flags %#x\n", number, (void *)action.sa_handler, action.sa_flags);
    }
    stack_t stack;
    sigaltstack(NULL, &stack);
    printf("signal stack flags %#x size %zu\n", stack.ss_flags, stack.ss_size);
}

__attribute__((noinline)) static void timers(void)
{
    for (int kind = ITIMER_REAL; kind <= ITIMER_PROF; kind++) {
        struct itimerval value;
        getitimer(kind, &value);
        printf("timer %d %d\n", kind, value.it_value.tv_sec || value.it_value.tv_usec);
    }
}

__attribute__((noinline)) static void attributes(void)
{
    char folder[4096], executable[4096] = "";
    unsigned mxcsr;
    unsigned short control;
    int death_signal = 0, terminal = open("/dev/tty", O_RDWR | O_NOCTTY);
    prctl(PR_GET_PDEATHSIG, &death_signal);
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(control));
    if (readlink("/proc/self/exe", executable, sizeof executable - 1) < 0)
        executable[0] = 0;
    printf("errno %d\n", first_errno);
    printf("folder %s\n", getcwd(folder, sizeof folder));
    printf("executable %s %s\n", executable, (const char *)getauxval(AT_EXECFN));
    printf("secure %lu hwcap %#lx %#lx clock %lu\n", getauxval(AT_SECURE), getauxval(AT_HWCAP), getauxval(AT_HWCAP2),
           getauxval(AT_CLKTCK));
    printf("terminal %d, foreground %d, group of the parent %d, session of the parent %d\n", terminal >= 0,
           terminal >= 0 && tcgetpgrp(terminal) == getpgrp(), getpgid(getppid()) == getpgrp(), getsid(getppid()) == getsid(0));
    printf("priority %d policy %d personality %#x\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0), personality(~0u));
    printf("death signal %d dumpable %d keepcaps %d slack %d bits %d\n", death_signal, prctl(PR_GET_DUMPABLE),
           prctl(PR_GET_KEEPCAPS), prctl(PR_GET_TIMERSLACK), prctl(PR_GET_SECUREBITS));
    printf("mxcsr %#x x87 %#x\n", mxcsr, control);
    if (terminal >= 0)
        close(terminal);
}

int main(int argc, char **argv)
{
    first_errno = errno;
    files();
    text_lists(argc, argv);
    status_lines();
    limits();
    signals();
    timers();
    attributes();
    return 0;
}
