/*
 * Functions that never return: the last instruction of the caller is the call, so its return address already belongs to
 * the next function. Left here by longjmp, and at the end by exit.
 */
#include <setjmp.h>
#include "check.h"

static jmp_buf back;

TRACED __attribute__((noreturn)) void leave(int code) { longjmp(back, code); }

TRACED __attribute__((noreturn)) void ends_in_call(int code) { leave(code + 1); }

TRACED long after(long x) { return x + 1; } /* where ends_in_call's return address points to */

TRACED int guarded(int code)
{
    int came = setjmp(back);
    if (came == 0)
        ends_in_call(code);
    return came;
}

TRACED __attribute__((noreturn)) void quit(int code)
{
    finish();
    exit(code);
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 20000);
    for (long i = 1; i <= rounds; i++) {
        EXPECT(guarded((int)i) == (int)i + 1);
        EXPECT(after(i) == i + 1);
    }
    quit(failures != 0 ? 1 : 7);
}
