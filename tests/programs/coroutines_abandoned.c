/* Coroutines that are left in the middle of traced calls and whose stacks are used again for the next ones. */
#include <ucontext.h>
#include "check.h"

enum { STACK = 32 * 1024 };

static ucontext_t main_context, coroutine;
static long reached;

TRACED void leaves(void)
{
    reached++;
    swapcontext(&coroutine, &main_context);
}

TRACED void deep(int depth)
{
    if (depth == 0)
        leaves();
    else
        deep(depth - 1);
}

TRACED void body(int depth) { deep(depth); }

TRACED void starts(char *stack, int depth)
{
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = STACK;
    coroutine.uc_link = &main_context;
    makecontext(&coroutine, (void (*)(void))body, 1, depth);
    swapcontext(&main_context, &coroutine);
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 50000);
    char *stack = malloc(STACK);
    for (long i = 0; i < rounds; i++)
        starts(stack, (int)(i % 10));
    EXPECT(reached == rounds);
    return finish();
}
