/*
 * What every program to be traced shares. All of it is inlined, so that no function but the program's own shows up in
 * a trace.
 *
 * A program does the same work in each of `rounds` rounds (first argument, or the program's usual number), checks its own
 * results, prints what differs, or OK, and exits with 1 or 0. With a second argument `stop` it stops itself
 * (SIGSTOP) before the first round, so that a debugger or the call/return checker can attach to it.
 */
#ifndef SHADOWGRAPH_TEST_CHECK_H
#define SHADOWGRAPH_TEST_CHECK_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A function that is really called: neither inlined nor cloned, and its callers know nothing about its body. */
#if defined(__clang__)
#define TRACED __attribute__((noinline, optnone, used))
#else
#define TRACED __attribute__((noipa, used))
#endif
#define INLINED static inline __attribute__((always_inline, unused, no_instrument_function))

static int failures;

INLINED long rounds_of(int argc, char **argv, long usual)
{
    setvbuf(stdout, NULL, _IOLBF, 1 << 12);
    if (argc > 2 && strcmp(argv[2], "stop") == 0)
        raise(SIGSTOP);
    return argc > 1 ? atol(argv[1]) : usual;
}

/* Counts a difference and prints the first few. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition) && failures++ < 10)                                                                           \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                             \
    } while (0)

INLINED int finish(void)
{
    if (failures != 0)
        printf("%d differences\n", failures);
    else
        puts("OK");
    return failures != 0;
}

#endif
