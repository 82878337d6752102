/*
 * Waits in one system call, chosen by the first argument, and prints what it returned, errno, and whether all that a
 * system call must leave alone is as it was: the vector registers, the red zone, the flags and the signal mask.
 * Waiting ends when a byte arrives at stdin, except for `sleep` and `futex`, which end in time. The second argument, if
 * given, is the interval in microseconds of a timer whose signal has a handler (with SA_RESTART).
 *
 * `foreign` is there for remote calls: it changes every register that a function may change.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks;

static void tick(int number)
{
    (void)number;
    ticks++;
}

__attribute__((noinline, used)) long foreign(long a, long b, long c, long d, long e, long f)
{
    __asm__ volatile("fninit; fldpi; fldpi; fldpi" ::: "memory");
    __asm__ volatile("vzeroall\n\tpcmpeqd %%xmm0, %%xmm0\n\tpcmpeqd %%xmm15, %%xmm15" ::: "memory");
    if (__builtin_cpu_supports("avx512f"))
        __asm__ volatile("vpxorq %%zmm31, %%zmm31, %%zmm31\n\tkxnorw %%k1, %%k1, %%k1" ::: "memory");
    __asm__ volatile("mov $0x3f80, %%eax\n\tpush %%rax\n\tldmxcsr (%%rsp)\n\tpop %%rax" ::: "rax", "memory");
    return a + 10 * b + 100 * c + 1000 * d + 10000 * e + 100000 * f;
}

/* One system call with patterns in everything it has to preserve; counts what has changed. */
static long patterned(long number, long a, long b, long c, long d, long e, long f, int *changed)
{
    static uint8_t before[32 * 64] __attribute__((aligned(64))), after[32 * 64] __attribute__((aligned(64)));
    static uint64_t zone[16], masks[2] = {0xa5a5, 0};
    static uint32_t mxcsr[2];
    static double x87[2] = {2.5, 0};
    int wide = __builtin_cpu_supports("avx512f");
    uint64_t flags;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    for (unsigned i = 0; i < sizeof before; i++)
        before[i] = (uint8_t)(i * 7 + 3);
#define EACH(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) do(13) do(14) do(15)
#define HIGH(do) do(16) do(17) do(18) do(19) do(20) do(21) do(22) do(23) do(24) do(25) do(26) do(27) do(28) do(29) do(30) do(31)
#define LOAD256(n) __asm__ volatile("vmovdqu %0, %%ymm" #n : : "m"(*(char(*)[32])(before + 64 * n)));
#define SAVE256(n) __asm__ volatile("vmovdqu %%ymm" #n ", %0" : "=m"(*(char(*)[32])(after + 64 * n)));
#define LOAD512(n) __asm__ volatile("vmovdqu64 %0, %%zmm" #n : : "m"(*(char(*)[64])(before + 64 * n)));
#define SAVE512(n) __asm__ volatile("vmovdqu64 %%zmm" #n ", %0" : "=m"(*(char(*)[64])(after + 64 * n)));
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr[0]));
    __asm__ volatile("fldl %0" : : "m"(x87[0]));
    if (wide) {
        EACH(LOAD512) HIGH(LOAD512)
        __asm__ volatile("kmovw %0, %%k1" : : "r"((uint32_t)masks[0]));
    } else {
        EACH(LOAD256)
    }
    __asm__ volatile("movq $0x1111, -8(%%rsp)\n\tmovq $0x2222, -64(%%rsp)\n\tmovq $0x3333, -128(%%rsp)\n\t"
                     "std\n\t"
                     "syscall\n\t"
                     "mov -8(%%rsp), %%rcx\n\tmov %%rcx, 0(%[zone])\n\tmov -64(%%rsp), %%rcx\n\tmov %%rcx, 8(%[zone])\n\t"
                     "mov -128(%%rsp), %%rcx\n\tmov %%rcx, 16(%[zone])\n\t"
                     "lea -128(%%rsp), %%rsp\n\tpushfq\n\tpop %[flags]\n\tlea 128(%%rsp), %%rsp\n\tcld"
                     : "=a"(result), [flags] "=&b"(flags)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9), [zone] "r"(zone)
                     : "rcx", "r11", "memory", "cc");
    if (wide) {
        EACH(SAVE512) HIGH(SAVE512)
        __asm__ volatile("kmovw %%k1, %0" : "=r"(*(uint32_t *)&masks[1]));
    } else {
        EACH(SAVE256)
    }
    __asm__ volatile("fstpl %0" : "=m"(x87[1]));
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr[1]));
    *changed = (zone[0] != 0x1111) + (zone[1] != 0x2222) + (zone[2] != 0x3333) + !(flags & 0x400) + (x87[0] != x87[1]) +
               (mxcsr[0] != mxcsr[1]) + (wide && masks[0] != (masks[1] & 0xffff));
    for (unsigned i = 0; i < (wide ? 32 : 16); i++)
        *changed += memcmp(before + 64 * i, after + 64 * i, wide ? 64 : 32) != 0;
    return result;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "read";
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct timespec time = {0, 300000000}, left = {7, 7}, begun, ended;
    struct epoll_event event = {.events = EPOLLIN};
    struct pollfd poll = {.fd = 0, .events = POLLIN};
    static int word;
    sigset_t mask, blocked;
    int changed = -1;
    char byte = 0;
    long result;
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigaddset(&blocked, SIGWINCH);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGTRAP, SIG_IGN);
    signal(SIGSEGV, SIG_IGN);
    raise(SIGUSR2); /* stays pending */
    int set = epoll_create1(0);
    epoll_ctl(set, EPOLL_CTL_ADD, 0, &event);
    if (argc > 2) {
        struct itimerval interval = {{0, atoi(argv[2])}, {0, atoi(argv[2])}};
        setitimer(ITIMER_REAL, &interval, NULL);
    }
    puts("ready");
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    if (!strcmp(what, "read"))
        result = patterned(SYS_read, 0, (long)&byte, 1, 0, 0, 0, &changed);
    else if (!strcmp(what, "sleep"))
        result = patterned(SYS_nanosleep, (long)&time, (long)&left, 0, 0, 0, 0, &changed);
    else if (!strcmp(what, "futex"))
        result = patterned(SYS_futex, (long)&word, FUTEX_WAIT, 0, (long)&time, 0, 0, &changed);
    else if (!strcmp(what, "epoll"))
        result = patterned(SYS_epoll_wait, set, (long)&event, 1, -1, 0, 0, &changed);
    else if (!strcmp(what, "poll"))
        result = patterned(SYS_poll, (long)&poll, 1, -1, 0, 0, 0, &changed);
    else
        result = patterned(SYS_pause, 0, 0, 0, 0, 0, 0, &changed);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    long elapsed = (ended.tv_sec - begun.tv_sec) * 1000 + (ended.tv_nsec - begun.tv_nsec) / 1000000;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    sigset_t pending;
    sigpending(&pending);
    printf("result %ld errno %d changed %d\n", result, errno, changed);
    printf("blocked %d %d %d pending %d\n", sigismember(&mask, SIGUSR2), sigismember(&mask, SIGWINCH), sigismember(&mask, SIGALRM),
           sigismember(&pending, SIGUSR2));
    sigaction(SIGTRAP, NULL, &action);
    printf("ignored %d", action.sa_handler == SIG_IGN);
    sigaction(SIGSEGV, NULL, &action);
    printf(" %d\n", action.sa_handler == SIG_IGN);
    printf("slept %d ticked %d\n", elapsed >= 299, ticks > 0);
    return 0;
}
