/* Coroutines as boost.context and interpreters have them: a hand-written switch that pushes six registers and changes rsp. */
#include <stdint.h>
#include "check.h"

enum { STACK = 16 * 1024, COUNT = 100 };

extern void switch_stack(void **save, void *next);
asm(".pushsection .text\n.type switch_stack, @function\nswitch_stack:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n.size switch_stack, .-switch_stack\n.popsection\n");

static void *main_stack, *stacks[COUNT];
static long values[COUNT], now;

TRACED void yields(long value)
{
    values[now] = value;
    switch_stack(&stacks[now], main_stack);
}

TRACED void body(void)
{
    long mine = now;
    for (long i = 0;; i++)
        yields(mine + i);
}

TRACED void resumes(long which)
{
    now = which;
    switch_stack(&main_stack, stacks[which]);
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 2000);
    for (long i = 0; i < COUNT; i++) {
        char *stack = malloc(STACK);
        uintptr_t *top = (uintptr_t *)(((uintptr_t)stack + STACK) & ~(uintptr_t)15);
        *--top = 0;
        *--top = (uintptr_t)body;
        stacks[i] = top - 6;
    }
    for (long step = 0; step < rounds; step++)
        for (long i = 0; i < COUNT; i++) {
            resumes(i);
            EXPECT(values[i] == i + step);
        }
    return finish();
}
