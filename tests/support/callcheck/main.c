/*
 * callcheck: single-steps a program, all its threads and children, and holds each ret against a model of the hardware
 * shadow stack (model.h tells the rules). Prints counts and mismatches as JSON.
 *
 *     callcheck [options] --output FILE --main DELTA -- PROGRAM ARGUMENTS     from main on; DELTA: main's address minus entry point
 *     callcheck [options] --output FILE --attach PID                    a program that has stopped itself (SIGSTOP)
 *
 *     --limit STEPS              let go of the program after so many instructions
 *     --unwinder NAME            a file, by the beginning of its name, that may pop the shadow stack
 *     --switch FILE:START:END    code, by file offset, that changes from one stack to another
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checker.h"
#include "maps.h"

static struct rules rules = {.unwinders = {"libc.so", "libc-2", "libgcc_s", "libunwind", "ld-linux", "libpthread", "ld-musl"},
                             .unwinder_count = 7};
static struct counts counts;
static struct thread *threads;
static pid_t root;
static int root_status = -1;
static uint64_t limit = UINT64_MAX;

enum { OPTIONS = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC };

static void die(const char *what)
{
    fprintf(stderr, "callcheck: %s: %s\n", what, strerror(errno));
    exit(2);
}

static pid_t process_of(pid_t tid)
{
    char name[64], line[256];
    int process = tid;
    snprintf(name, sizeof name, "/proc/%d/status", tid);
    FILE *file = fopen(name, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Tgid: %d", &process) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return process;
}

static struct thread *thread_of(pid_t tid)
{
    for (struct thread *thread = threads; thread != NULL; thread = thread->next)
        if (thread->tid == tid)
            return thread;
    struct thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        die("memory");
    thread->tid = tid;
    thread->process = process_of(tid);
    thread->next = threads;
    model_init(&thread->model);
    threads = thread;
    counts.threads++;
    return thread;
}

static void forget_thread(pid_t tid)
{
    for (struct thread **link = &threads; *link != NULL; link = &(*link)->next) {
        struct thread *thread = *link;
        if (thread->tid == tid) {
            *link = thread->next;
            model_free(&thread->model);
            free(thread);
            return;
        }
    }
}

/* A child of fork or vfork goes on with its parent's stack, hence with a copy of its shadow stack. */
static void on_new(struct thread *parent, int event)
{
    unsigned long tid = 0;
    ptrace(PTRACE_GETEVENTMSG, parent->tid, NULL, &tid);
    struct thread *child = thread_of((pid_t)tid);
    if (event == PTRACE_EVENT_CLONE)
        return;
    model_free(&child->model);
    model_copy(&child->model, &parent->model);
}

static void on_exec(struct thread *thread)
{
    model_free(&thread->model);
    model_init(&thread->model);
    thread->prepared = 0;
    maps_forget();
}

static void step(struct thread *thread, int signal)
{
    ptrace(PTRACE_SINGLESTEP, thread->tid, NULL, (void *)(long)signal);
}

/* The signal to be delivered with the next step after a stop; 0 for stops that are ours. */
static int examine(struct thread *thread, int status, int *delivered)
{
    struct user_regs_struct registers;
    int signal = WSTOPSIG(status), event = status >> 16;
    if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK) {
        on_new(thread, event);
        return 0; /* still within the system call: what was prepared stays so */
    }
    if (ptrace(PTRACE_GETREGS, thread->tid, NULL, &registers) != 0)
        return 0;
    if (event == PTRACE_EVENT_EXEC)
        on_exec(thread);
    if (*delivered)
        checker_signal(thread, &registers, &counts);
    if (thread->prepared && (registers.rip != thread->before.rip || registers.rsp != thread->before.rsp))
        checker_finish(thread, &registers, &rules, &counts);
    checker_prepare(thread, &registers);
    *delivered = event == 0 && signal != SIGTRAP;
    return *delivered ? signal : 0;
}

static void detach_all(void)
{
    for (struct thread *thread = threads; thread != NULL; thread = thread->next) {
        if (ptrace(PTRACE_DETACH, thread->tid, NULL, NULL) == 0)
            continue;
        int status;
        ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL);
        if (waitpid(thread->tid, &status, __WALL) == thread->tid && WIFSTOPPED(status)) {
            int signal = status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
            ptrace(PTRACE_DETACH, thread->tid, NULL, (void *)(long)signal);
        }
    }
}

/* Steps everything until the last thread is gone (0) or the limit is reached (1). */
static int run(void)
{
    enum { MOST_DELIVERED = 1 << 22 };
    static char delivered_to[MOST_DELIVERED];
    while (threads != NULL && counts.steps < limit) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        if (!WIFSTOPPED(status)) {
            if (tid == root)
                root_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            forget_thread(tid);
            continue;
        }
        struct thread *thread = thread_of(tid);
        int delivered = delivered_to[tid % MOST_DELIVERED];
        int signal = examine(thread, status, &delivered);
        delivered_to[tid % MOST_DELIVERED] = (char)delivered;
        step(thread, signal);
    }
    return threads != NULL;
}

static uint64_t entry_point(pid_t pid)
{
    char name[64];
    Elf64_auxv_t pair;
    snprintf(name, sizeof name, "/proc/%d/auxv", pid);
    FILE *file = fopen(name, "r");
    uint64_t entry = 0;
    while (file != NULL && fread(&pair, sizeof pair, 1, file) == 1)
        if (pair.a_type == AT_ENTRY)
            entry = pair.a_un.a_val;
    if (file != NULL)
        fclose(file);
    return entry;
}

/* Runs a stopped program to `address` at full speed, with a breakpoint that is gone afterwards. */
static void run_to(pid_t pid, uint64_t address)
{
    int status;
    struct user_regs_struct registers;
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, pid, (void *)address, NULL);
    if (errno != 0)
        die("reading the first instruction of main");
    ptrace(PTRACE_POKETEXT, pid, (void *)address, (void *)((word & ~0xffL) | 0xcc));
    ptrace(PTRACE_CONT, pid, NULL, NULL);
    if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
        fprintf(stderr, "callcheck: the program did not reach main\n");
        exit(2);
    }
    ptrace(PTRACE_POKETEXT, pid, (void *)address, (void *)word);
    ptrace(PTRACE_GETREGS, pid, NULL, &registers);
    registers.rip = address;
    ptrace(PTRACE_SETREGS, pid, NULL, &registers);
}

/* On one processor a step costs a third of what it costs across two (22 against 71 microseconds, measured). */
static void share_processor(pid_t pid)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    if (pid != 0)
        sched_setaffinity(pid, sizeof one, &one);
}

static void launch(char **command, int64_t delta)
{
    int status;
    share_processor(0);
    root = fork();
    if (root == 0) {
        raise(SIGSTOP);
        execvp(command[0], command);
        _exit(127);
    }
    if (waitpid(root, &status, WUNTRACED) != root || ptrace(PTRACE_SEIZE, root, NULL, OPTIONS | PTRACE_O_EXITKILL) != 0)
        die("launching");
    kill(root, SIGCONT);
    for (;;) {
        if (waitpid(root, &status, __WALL) != root || !WIFSTOPPED(status)) {
            fprintf(stderr, "callcheck: %s did not start\n", command[0]);
            exit(2);
        }
        if (status >> 16 == PTRACE_EVENT_EXEC)
            break;
        int signal = status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
        ptrace(PTRACE_CONT, root, NULL, (void *)(long)signal);
    }
    run_to(root, entry_point(root) + (uint64_t)delta);
    struct thread *thread = thread_of(root);
    struct user_regs_struct registers;
    ptrace(PTRACE_GETREGS, root, NULL, &registers);
    checker_prepare(thread, &registers);
    step(thread, 0);
}

/* The threads of a program that has stopped itself; another tracer may still be about to let go of it. */
static void attach(pid_t pid)
{
    root = pid;
    for (int tries = 0; ptrace(PTRACE_SEIZE, pid, NULL, OPTIONS) != 0; tries++) {
        if (errno != EPERM || tries == 1000)
            die("attaching");
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    share_processor(pid);
    thread_of(pid);
    ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
    kill(pid, SIGCONT);
}

static void add_switch(char *text)
{
    char *start = strchr(text, ':'), *end = start != NULL ? strchr(start + 1, ':') : NULL;
    if (end == NULL || rules.switch_count == 8) {
        fprintf(stderr, "callcheck: --switch FILE:START:END\n");
        exit(2);
    }
    *start = 0;
    rules.switches[rules.switch_count++] =
        (struct range){text, strtoull(start + 1, NULL, 0), strtoull(end + 1, NULL, 0)};
}

int main(int argc, char **argv)
{
    const char *output = NULL;
    int64_t delta = 0;
    pid_t pid = 0;
    int at = 1;
    for (; at + 1 < argc && strcmp(argv[at], "--") != 0; at += 2) {
        char *value = argv[at + 1];
        if (strcmp(argv[at], "--output") == 0)
            output = value;
        else if (strcmp(argv[at], "--main") == 0)
            delta = strtoll(value, NULL, 0);
        else if (strcmp(argv[at], "--attach") == 0)
            pid = atoi(value);
        else if (strcmp(argv[at], "--limit") == 0)
            limit = strtoull(value, NULL, 0);
        else if (strcmp(argv[at], "--unwinder") == 0 && rules.unwinder_count < 32)
            rules.unwinders[rules.unwinder_count++] = value;
        else if (strcmp(argv[at], "--switch") == 0)
            add_switch(value);
        else
            break;
    }
    if (output == NULL || (pid == 0 && at + 1 >= argc)) {
        fprintf(stderr, "callcheck: --output FILE (--attach PID | --main DELTA -- PROGRAM ARGUMENTS)\n");
        return 2;
    }
    FILE *file = fopen(output, "w");
    if (file == NULL)
        die(output);
    if (pid != 0)
        attach(pid);
    else
        launch(argv + at + 1, delta);
    int limited = run();
    if (limited)
        detach_all();
    print_counts(file, &counts, root_status, limited);
    return fclose(file) != 0;
}
