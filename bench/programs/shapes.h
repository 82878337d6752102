/*
 * The functions whose calls are measured, in twins: plain_... are never traced, traced_... are, and floor_... (floor.S)
 * time and record themselves with the least that can do it.
 */
#ifndef SHAPES_H
#define SHAPES_H

#define CHAIN 8        /* calls in a chain */
#define TURNS 9        /* calls when one function calls eight others */
#define PAIR 2         /* calls when one function calls another, or tail-calls it */
#define FIB 15         /* fib(15) is */
#define FIB_CALLS 1973 /* so many calls */

#define DECLARE_SHAPES(twin)                                                                                                \
    long twin##_leaf(long x);                                                                                              \
    long twin##_fib(long n);                                                                                               \
    long twin##_chain(long x);                                                                                             \
    long twin##_turns(long x);                                                                                             \
    long twin##_forward(long x);                                                                                           \
    long twin##_tail(long x);                                                                                              \
    long twin##_loop(long n);                                                                                              \
    long twin##_outer_loop(long n);

DECLARE_SHAPES(plain)
DECLARE_SHAPES(traced)

long floor_leaf(long x);
long floor_fib(long n);
long floor_chain(long x);

/* In a shared library, called through its procedure linkage table. */
long library_leaf(long x);
long library_loop(long n); /* n calls of library_leaf from within the library */

#endif
