/*
 * Threads that each wait in another system call, and say how the wait ended: with its time, with what it waited for, or
 * with an error. A line at stdin lets those go on that wait for something; it is read by the main thread.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MILLISECONDS 1500

static int pipes[16][2];
static int word, gate;
static int queue, semaphores;
static pid_t child;

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

TRACED long sleep_relative(int unused)
{
    struct timespec time = {MILLISECONDS / 1000, MILLISECONDS % 1000 * 1000000}, left = {7, 7};
    (void)unused;
    return syscall(SYS_nanosleep, &time, &left); /* what is left says nothing when nothing has interrupted the sleep */
}

TRACED long sleep_absolute(int unused)
{
    struct timespec time;
    (void)unused;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_sec += 1;
    time.tv_nsec += 500000000;
    if (time.tv_nsec >= 1000000000)
        time.tv_sec++, time.tv_nsec -= 1000000000;
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

TRACED long futex_with_time(int unused)
{
    struct timespec time = {MILLISECONDS / 1000, MILLISECONDS % 1000 * 1000000};
    (void)unused;
    return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &time);
}

TRACED long futex_without(int unused)
{
    (void)unused;
    return syscall(SYS_futex, &gate, FUTEX_WAIT, 0, NULL);
}

TRACED long poll_with_time(int file)
{
    struct pollfd poll_file = {.fd = file, .events = POLLIN};
    return poll(&poll_file, 1, MILLISECONDS);
}

TRACED long poll_without(int file)
{
    struct pollfd poll_file = {.fd = file, .events = POLLIN};
    return poll(&poll_file, 1, -1);
}

TRACED long select_without(int file)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(file, &set);
    return select(file + 1, &set, NULL, NULL, NULL);
}

TRACED long epoll_without(int file)
{
    struct epoll_event event = {.events = EPOLLIN}, got;
    int set = epoll_create1(0);
    epoll_ctl(set, EPOLL_CTL_ADD, file, &event);
    return epoll_wait(set, &got, 1, -1);
}

TRACED long read_pipe(int file)
{
    char byte;
    return read(file, &byte, 1);
}

TRACED long receive_with_time(int unused)
{
    int pair[2];
    char byte;
    struct timeval time = {60, 0};
    (void)unused;
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair))
        return -2;
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    pipes[15][1] = pair[1];
    return recv(pair[0], &byte, 1, 0);
}

TRACED long wait_for_child(int unused)
{
    int status;
    (void)unused;
    return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : -1;
}

TRACED long receive_message(int unused)
{
    struct {
        long type;
        char text[8];
    } message;
    (void)unused;
    return msgrcv(queue, &message, sizeof message.text, 0, 0);
}

TRACED long take_semaphore(int unused)
{
    struct sembuf operation = {0, -1, 0};
    (void)unused;
    return semop(semaphores, &operation, 1);
}

TRACED long condition(int unused)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec time;
    (void)unused;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += 2;
    pthread_mutex_lock(&mutex);
    return pthread_cond_timedwait(&never, &mutex, &time);
}

static const struct {
    const char *name;
    long (*wait)(int);
    int timed;
} waits[] = {
    {"sleep_relative", sleep_relative, 1}, {"sleep_absolute", sleep_absolute, 1}, {"futex_with_time", futex_with_time, 1},
    {"futex_without", futex_without, 0},   {"poll_with_time", poll_with_time, 1}, {"poll_without", poll_without, 0},
    {"select_without", select_without, 0}, {"epoll_without", epoll_without, 0},   {"read_pipe", read_pipe, 0},
    {"receive_with_time", receive_with_time, 0}, {"wait_for_child", wait_for_child, 0},
    {"receive_message", receive_message, 0}, {"take_semaphore", take_semaphore, 0}, {"condition", condition, 1},
};
#define COUNT ((int)(sizeof waits / sizeof waits[0]))

static char lines[COUNT][128];

static void *run(void *argument)
{
    int index = (int)(intptr_t)argument;
    long begun = milliseconds();
    errno = 0;
    long result = waits[index].wait(pipes[index][0]);
    int error = errno;
    long elapsed = milliseconds() - begun;
    snprintf(lines[index], sizeof lines[index], "%s %ld errno %d early %d", waits[index].name, result, error,
             waits[index].timed && elapsed < MILLISECONDS - 1);
    return NULL;
}

int main(void)
{
    pthread_t threads[COUNT];
    char line[16];
    int go[2];
    if (pipe(go))
        return 2;
    child = fork();
    if (child == 0) {
        char byte;
        _exit(read(go[0], &byte, 1) == 1 ? 42 : 43);
    }
    queue = msgget(IPC_PRIVATE, 0600);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    semctl(semaphores, 0, SETVAL, 0);
    for (int i = 0; i < COUNT; i++)
        if (pipe(pipes[i]))
            return 2;
    for (int i = 0; i < COUNT; i++)
        pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i);
    usleep(100000); /* so that each of them waits */
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 2;
    struct {
        long type;
        char text[8];
    } message = {1, "message"};
    struct sembuf give = {0, 1, 0};
    msgsnd(queue, &message, sizeof message.text, 0);
    semop(semaphores, &give, 1);
    gate = 1;
    syscall(SYS_futex, &gate, FUTEX_WAKE, 1);
    if (write(go[1], "x", 1) != 1 || send(pipes[15][1], "x", 1, 0) != 1)
        return 2;
    for (int i = 0; i < COUNT; i++)
        if (!waits[i].timed && write(pipes[i][1], "x", 1) != 1)
            return 2;
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    msgctl(queue, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
    for (int i = 0; i < COUNT; i++)
        puts(lines[i]);
    return 0;
}
