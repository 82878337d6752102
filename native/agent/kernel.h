/* Raw system calls, for slow paths only: the agent has no libc, and the program's errno is not ours to touch. */
#ifndef SHADOWGRAPH_KERNEL_H
#define SHADOWGRAPH_KERNEL_H

#include <stdint.h>

#define KERNEL_read 0
#define KERNEL_open 2
#define KERNEL_close 3
#define KERNEL_mmap 9
#define KERNEL_munmap 11
#define KERNEL_rt_sigprocmask 14
#define KERNEL_access 21
#define KERNEL_sched_yield 24
#define KERNEL_mremap 25
#define KERNEL_madvise 28
#define KERNEL_getpid 39
#define KERNEL_execve 59
#define KERNEL_kill 62
#define KERNEL_ftruncate 77
#define KERNEL_getppid 110
#define KERNEL_sigaltstack 131
#define KERNEL_prctl 157
#define KERNEL_gettid 186
#define KERNEL_futex 202
#define KERNEL_tgkill 234
#define KERNEL_memfd_create 319
#define KERNEL_execveat 322

#define ERROR_ESRCH 3
#define ERROR_EFAULT 14

static inline long sg_kernel6(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#define sg_kernel4(n, a, b, c, d) sg_kernel6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define sg_kernel3(n, a, b, c) sg_kernel4(n, a, b, c, 0)
#define sg_kernel2(n, a, b) sg_kernel4(n, a, b, 0, 0)
#define sg_kernel1(n, a) sg_kernel4(n, a, 0, 0, 0)
#define sg_kernel0(n) sg_kernel4(n, 0, 0, 0, 0)

/* Blocks every signal of this thread; gives back what sg_signals_restore needs. */
static inline uint64_t sg_signals_block(void)
{
    uint64_t all = ~0ull, old = 0;
    sg_kernel4(KERNEL_rt_sigprocmask, 2 /* SIG_SETMASK */, &all, &old, 8);
    return old;
}

static inline void sg_signals_restore(uint64_t old)
{
    sg_kernel4(KERNEL_rt_sigprocmask, 2, &old, 0, 8);
}

/*
 * Reads 8 bytes that may not be mapped. The probe is a rt_sigprocmask that fails either way: EFAULT if the kernel cannot
 * read the set, EINVAL (bad how) if it can. Every program needs that call, so sandboxes let it pass, unlike
 * process_vm_readv.
 */
static inline int sg_peek(uint64_t address, uint64_t *value)
{
    if (address < 4096 || sg_kernel4(KERNEL_rt_sigprocmask, 77, address, 0, 8) == -ERROR_EFAULT)
        return 0; /* a null set would be no set, and no error */
    *value = *(volatile uint64_t *)address;
    return 1;
}

/* FUTEX_WAIT with a time-out, and FUTEX_WAKE of all; shared ones: the words lie in a memfd. */
static inline void sg_futex_wait(uint32_t *word, uint32_t seen, long nanoseconds)
{
    long time[2] = {0, nanoseconds};
    sg_kernel4(KERNEL_futex, word, 0, seen, time);
}

static inline void sg_futex_wake(uint32_t *word)
{
    sg_kernel3(KERNEL_futex, word, 1, 0x7fffffff);
}

#endif
