/*
 * Leaf functions that keep their variables in the 128 bytes below rsp, interrupted by signals whose handler makes
 * calls of its own: nobody may write there.
 */
#include <sys/time.h>
#include "check.h"

static volatile sig_atomic_t ticks;

TRACED void handler_leaf(volatile long *words)
{
    for (int i = 0; i < 16; i++)
        words[i] = -1;
}

TRACED void on_tick(int signal)
{
    volatile long words[16];
    (void)signal;
    handler_leaf(words);
    ticks++;
}

extern long red_zone_sum(long a, long b);
asm(".pushsection .text\n"
    ".type red_zone_sum, @function\n"
    "red_zone_sum:\n"
    "  movq %rdi, -8(%rsp)\n"
    "  movq %rsi, -128(%rsp)\n"
    "  movq %rdi, -64(%rsp)\n"
    "  movl $20, %ecx\n"
    "1: decl %ecx\n"
    "  jnz 1b\n"
    "  movq -8(%rsp), %rax\n"
    "  addq -128(%rsp), %rax\n"
    "  addq -64(%rsp), %rax\n"
    "  ret\n"
    ".size red_zone_sum, .-red_zone_sum\n.popsection\n");

TRACED long compiled_leaf(long a, long b)
{
    volatile long v[8] = {a, b, a, b, a, b, a, b};
    return v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7];
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 1000000);
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    for (long i = 0; i < rounds; i++) {
        EXPECT(red_zone_sum(i, 7) == 2 * i + 7);
        EXPECT(compiled_leaf(i, 3) == 4 * i + 12);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("ticks=%d\n", (int)ticks);
    return finish();
}
