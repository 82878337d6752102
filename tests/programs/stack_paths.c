/*
 * Every way through the entry path and the return path, for single-stepping: a thread's first call, plain calls, a call
 * that is not traced by an unhooked function, calls through a pointer, tail calls, recursion beyond a block of frames, more
 * calls than a ring segment holds, and a return over calls that longjmp has left behind.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define TRACED __attribute__((noipa, used))

volatile long sink;
static jmp_buf place;

TRACED long leaf(long n) { return n + 1; }

TRACED long pushes(long n, long m)
{
    volatile char room[200];
    room[n & 63] = (char)m;
    return leaf(n) + leaf(m) + room[n & 63];
}

/* Calls among the first instructions: behind the jump that hooks, sharing bytes with it, and behind a short jump. */
extern long calls_second(long n), calls_first(long n), calls_pushed(long n);
__asm__(".text\n.type calls_second, @function\ncalls_second:\n.cfi_startproc\n\tsub $8, %rsp\n.cfi_def_cfa_offset 16\n"
        "\tcall leaf\n\tadd $8, %rsp\n.cfi_def_cfa_offset 8\n\tret\n.cfi_endproc\n.size calls_second, . - calls_second\n"
        ".type calls_first, @function\ncalls_first:\n.cfi_startproc\n\tcall leaf\n\tadd $1, %rax\n\tret\n.cfi_endproc\n"
        ".size calls_first, . - calls_first\n"
        ".type calls_pushed, @function\ncalls_pushed:\n.cfi_startproc\n\tpush %rbx\n.cfi_def_cfa_offset 16\n"
        ".cfi_offset 3, -16\n\tcall leaf\n\tpop %rbx\n.cfi_def_cfa_offset 8\n\tret\n.cfi_endproc\n"
        ".size calls_pushed, . - calls_pushed\n");

TRACED long through_pointer(long (*function)(long), long n) { return function(n) + 1; }

TRACED long tail_last(long n) { return n * 3; }
TRACED long tail_middle(long n) { sink = n; return tail_last(n + 1); }
TRACED long tail_first(long n) { sink = n + 1; return tail_middle(n + 2); }

TRACED long recurse(long n) { return n ? recurse(n - 1) + leaf(n) : 0; }

TRACED void jumps(void) { longjmp(place, 1); }
TRACED void leaves(long depth)
{
    if (depth)
        leaves(depth - 1);
    else
        jumps();
    sink = depth;
}

/* The longjmp itself is not followed by a test that steps: it asks to run on to `landed`. */
TRACED long landed(long n) { return leaf(n); }
TRACED long returns_over_dead(void)
{
    if (!setjmp(place))
        leaves(3);
    return landed(2);
}

TRACED void fill_ring(long n)
{
    for (long i = 0; i < n; i++)
        sink += leaf(i);
}

TRACED long first_call(long n) { return leaf(n); }

/* malloc is called from the program and, within strdup, from the library itself. */
TRACED void library_calls(void)
{
    free(malloc(100));
    free(strdup("text"));
}

TRACED void paths_end(void) { sink = 0; }

int main(void)
{
    first_call(1);
    pushes(2, 3);
    through_pointer(leaf, 4);
    sink = calls_second(1) + calls_first(2) + calls_pushed(3);
    tail_first(5);
    recurse(34);
    fill_ring(80);
    returns_over_dead();
    library_calls();
    leaf(6);
    paths_end();
    return 0;
}
