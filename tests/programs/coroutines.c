/* Ten thousand ucontext coroutines, all alive at once, resumed in turn; each stays in the middle of a traced call. */
#include <stdint.h>
#include <ucontext.h>
#include "check.h"

enum { STACK = 16 * 1024, STEPS = 5 };

struct coroutine {
    ucontext_t context, caller;
    long number, value;
};

TRACED void yields(struct coroutine *self, long value)
{
    self->value = value;
    swapcontext(&self->context, &self->caller);
}

TRACED long generates(struct coroutine *self, long step)
{
    yields(self, self->number * 10 + step);
    return step + 1;
}

TRACED void body(unsigned low, unsigned high)
{
    struct coroutine *self = (struct coroutine *)((uintptr_t)high << 32 | low);
    for (long step = 0; step < STEPS;)
        step = generates(self, step);
    self->value = -1;
}

TRACED long resumes(struct coroutine *coroutine)
{
    swapcontext(&coroutine->caller, &coroutine->context);
    return coroutine->value;
}

int main(int argc, char **argv)
{
    const long rounds = rounds_of(argc, argv, 10000);
    struct coroutine *all = calloc((size_t)rounds, sizeof *all);
    char *stacks = malloc((size_t)rounds * STACK);
    for (long i = 0; i < rounds; i++) {
        uintptr_t address = (uintptr_t)&all[i];
        all[i].number = i;
        getcontext(&all[i].context);
        all[i].context.uc_stack.ss_sp = stacks + i * STACK;
        all[i].context.uc_stack.ss_size = STACK;
        all[i].context.uc_link = &all[i].caller;
        makecontext(&all[i].context, (void (*)(void))body, 2, (unsigned)address, (unsigned)(address >> 32));
    }
    for (long step = 0; step < STEPS; step++)
        for (long i = 0; i < rounds; i++)
            EXPECT(resumes(&all[i]) == i * 10 + step);
    for (long i = rounds - 1; i >= 0; i--)
        EXPECT(resumes(&all[i]) == -1);
    return finish();
}
