/*
 * Runs functions of code that it is given, and says what they did: the test bench of relocation (../hook_bench.py).
 *
 * Standard input, all numbers little-endian:
 *   u32 regions, each: u64 address, u64 size, u64 bytes that follow, bytes     mapped readable, writable and executable
 *   u64 data address, u64 data size                                           one of the regions, put back before each run
 *   u64 log address                                                           counted by the thunks' `enter`; cleared likewise
 *   u32 runs, each: struct state                                              rip is the function
 * Standard output, for each run: struct result.
 *
 * A function is called with every register and the flags as given, on a stack of its own, filled with the same bytes
 * each time. A signal ends the run; which one is part of the result.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct state {
    uint64_t registers[16]; /* rax rcx rdx rbx rsp rbp rsi rdi r8..r15, as the CPU numbers them */
    uint64_t flags;
    uint64_t rip;
    uint64_t vectors[8][2]; /* xmm0..7 */
};

struct result {
    struct state state;
    uint64_t data_hash;
    uint64_t stack_hash; /* of the arguments on the stack and what lies above */
    uint64_t entered;    /* how many ids are in the log */
    uint32_t log[32];
    uint64_t signal;
};

enum { STACK_SIZE = 1 << 20, STACK_ABOVE = 4096, STACK_FILLED = 1 << 15, ARITHMETIC = 0xcd5 /* OF DF SF ZF AF PF CF */ };

extern void run_state(struct state *);

/* rdi: the state, read before the call and written after it. Callee-saved registers of C are kept on our own stack. */
asm(".text\n.globl run_state\nrun_state:\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rdi, run_current(%rip)\nmov %rsp, run_stack(%rip)\n"
    "mov 32(%rdi), %rsp\n"
    "movups 144(%rdi), %xmm0\nmovups 160(%rdi), %xmm1\nmovups 176(%rdi), %xmm2\nmovups 192(%rdi), %xmm3\n"
    "movups 208(%rdi), %xmm4\nmovups 224(%rdi), %xmm5\nmovups 240(%rdi), %xmm6\nmovups 256(%rdi), %xmm7\n"
    "mov 136(%rdi), %rax\nmov %rax, run_target(%rip)\n"
    "push 128(%rdi)\npopfq\n"
    "mov 0(%rdi), %rax\nmov 8(%rdi), %rcx\nmov 16(%rdi), %rdx\nmov 24(%rdi), %rbx\nmov 40(%rdi), %rbp\n"
    "mov 48(%rdi), %rsi\nmov 64(%rdi), %r8\nmov 72(%rdi), %r9\nmov 80(%rdi), %r10\nmov 88(%rdi), %r11\n"
    "mov 96(%rdi), %r12\nmov 104(%rdi), %r13\nmov 112(%rdi), %r14\nmov 120(%rdi), %r15\n"
    "mov 56(%rdi), %rdi\n"
    "call *run_target(%rip)\n"
    "mov %rdi, run_rdi(%rip)\nmov run_current(%rip), %rdi\n"
    "mov %rsp, 32(%rdi)\nmov run_stack(%rip), %rsp\npushfq\npop 128(%rdi)\ncld\n"
    "mov %rax, 0(%rdi)\nmov %rcx, 8(%rdi)\nmov %rdx, 16(%rdi)\nmov %rbx, 24(%rdi)\nmov %rbp, 40(%rdi)\n"
    "mov %rsi, 48(%rdi)\nmov %r8, 64(%rdi)\nmov %r9, 72(%rdi)\nmov %r10, 80(%rdi)\nmov %r11, 88(%rdi)\n"
    "mov %r12, 96(%rdi)\nmov %r13, 104(%rdi)\nmov %r14, 112(%rdi)\nmov %r15, 120(%rdi)\n"
    "mov run_rdi(%rip), %rax\nmov %rax, 56(%rdi)\n"
    "movups %xmm0, 144(%rdi)\nmovups %xmm1, 160(%rdi)\nmovups %xmm2, 176(%rdi)\nmovups %xmm3, 192(%rdi)\n"
    "movups %xmm4, 208(%rdi)\nmovups %xmm5, 224(%rdi)\nmovups %xmm6, 240(%rdi)\nmovups %xmm7, 256(%rdi)\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n"
    ".local run_current\n.comm run_current, 8, 8\n.local run_stack\n.comm run_stack, 8, 8\n"
    ".local run_target\n.comm run_target, 8, 8\n.local run_rdi\n.comm run_rdi, 8, 8\n");

static sigjmp_buf escape;
static volatile sig_atomic_t caught;

static void catch_signal(int number)
{
    caught = number;
    siglongjmp(escape, 1);
}

static void take(void *into, size_t size)
{
    if (fread(into, 1, size, stdin) != size) {
        fprintf(stderr, "hook bench: the input is cut short\n");
        exit(2);
    }
}

static uint64_t take_number(size_t size)
{
    uint64_t number = 0;
    take(&number, size);
    return number;
}

static void *map(uint64_t address, uint64_t size)
{
    void *wanted = (void *)address;
    void *got = mmap(wanted, size, PROT_READ | PROT_WRITE | PROT_EXEC,
                     MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    if (got == MAP_FAILED || (address && got != wanted)) {
        fprintf(stderr, "hook bench: no memory at %#lx\n", (unsigned long)address);
        exit(2);
    }
    return got;
}

static uint64_t hash(const unsigned char *bytes, size_t size)
{
    uint64_t value = 1469598103934665603u;
    for (size_t i = 0; i < size; i++)
        value = (value ^ bytes[i]) * 1099511628211u;
    return value;
}

int main(void)
{
    for (uint32_t regions = take_number(4); regions; regions--) {
        uint64_t address = take_number(8), size = take_number(8), bytes = take_number(8);
        take(map(address, size), bytes);
    }
    unsigned char *data = (unsigned char *)take_number(8);
    size_t data_size = take_number(8);
    uint64_t *log = (uint64_t *)take_number(8);
    unsigned char *pristine = malloc(data_size);
    if (!pristine)
        return 2;
    memcpy(pristine, data, data_size);
    unsigned char *stack = map(0x7c0000000000, STACK_SIZE);

    stack_t aside = {.ss_sp = map(0, STACK_SIZE), .ss_size = STACK_SIZE};
    sigaltstack(&aside, NULL);
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
    for (const int *number = (const int[]){SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGALRM, 0}; *number; number++)
        sigaction(*number, &action, NULL);

    for (uint32_t runs = take_number(4); runs; runs--) {
        static struct result result;
        memset(&result, 0, sizeof result);
        take(&result.state, sizeof result.state);
        memcpy(data, pristine, data_size);
        memset(log, 0, 8);
        for (size_t i = STACK_SIZE - STACK_FILLED; i < STACK_SIZE; i++)
            stack[i] = (unsigned char)(i * 31 + (i >> 8));
        unsigned char *top = stack + STACK_SIZE - STACK_ABOVE;
        result.state.registers[4] = (uint64_t)top;
        caught = 0;
        if (!sigsetjmp(escape, 1))
            run_state(&result.state);
        result.signal = caught;
        result.state.flags &= ARITHMETIC;
        result.data_hash = hash(data, data_size);
        result.stack_hash = hash(top, STACK_ABOVE);
        result.entered = log[0];
        memcpy(result.log, log + 1, sizeof result.log);
        fwrite(&result, sizeof result, 1, stdout);
    }
    return fflush(stdout) ? 2 : 0;
}
