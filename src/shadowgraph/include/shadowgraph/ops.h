/*
 * What the handlers of an Ops are given: one call of a hooked function, at its entry or at its exit.
 *
 *     #include <shadowgraph/ops.h>
 *
 *     int on_entry(struct sg_call *call)          // called before the function runs. Returns whether on_exit is wanted
 *     {                                           // for this call (0: it is not).
 *         *(uint64_t *)call->data = sg_arg(call, 2);
 *         return 1;
 *     }
 *
 *     void on_exit(struct sg_call *call)          // called when the function has returned, with the same data
 *     {
 *         struct { uint64_t asked, got; } record = {*(uint64_t *)call->data, call->result};
 *         sg_emit(call, &record, sizeof record);
 *     }
 *
 * Handlers run in the thread that makes the call, on its stack, with all of its registers kept for it. They may be called in
 * any place where the program calls the function: within malloc, with locks held, in a signal handler. So they should call
 * nothing that takes a lock. Functions that they call are not given to handlers again.
 *
 * Handlers that are given as source stand alone: they can call what is in the source, and memcpy, memmove, memset, memcmp,
 * strlen, strnlen, strcmp and strncmp (<string.h>), which are linked into them. All threads share their variables.
 */
#ifndef SHADOWGRAPH_OPS_H
#define SHADOWGRAPH_OPS_H

#include <stdint.h>

struct sg_call {
    uint64_t function;             /* the number of the function; Ops.functions_by_number names it */
    const uint64_t *arguments;     /* entry: rdi, rsi, rdx, rcx, r8, r9; exit: 0 */
    const uint64_t *stack;         /* entry: the arguments on the stack; exit: 0 */
    const uint64_t (*vectors)[2];  /* the low halves of xmm0 to xmm7 at the entry, of xmm0 and xmm1 at the exit */
    uint64_t result, result_high;  /* exit: rax, rdx */
    uint64_t return_address;       /* where the function returns to, in the program */
    void *data;                    /* data_size bytes of this user and this call, not cleared; 0 if it asked for none */
    uint64_t data_size;
    uint64_t time;                 /* when the call was entered, in ticks of the time stamp counter; at the entry the same for
                                      all users of the call */
    uint64_t duration;             /* exit: ticks since */
    uint32_t thread, process;
    int (*emit)(struct sg_call *call, const void *record, uint64_t size);
    uint64_t user;                 /* the agent's own */
    void *instance;                /* instance_size bytes of this user and this call, as the last call to have had them left
                                      them, zeros at first; 0 if it asked for none */
    uint64_t instance_size;
};

/* The n-th integer or pointer argument, counted from 0 (entry). */
static inline uint64_t sg_arg(const struct sg_call *call, unsigned n)
{
    return n < 6 ? call->arguments[n] : call->stack[n - 6];
}

/* The n-th floating-point argument, n below 8, as the bits of a double (entry). */
static inline uint64_t sg_farg_bits(const struct sg_call *call, unsigned n)
{
    return call->vectors[n][0];
}

/* A floating-point result as the bits of a double (exit). */
static inline uint64_t sg_fresult_bits(const struct sg_call *call)
{
    return call->vectors[0][0];
}

/* The same as numbers, and where a function takes or returns a float. (The agent itself is compiled without SSE.) */
#ifdef __SSE2__
static inline double sg_double_of(uint64_t bits)
{
    union {
        uint64_t bits;
        double number;
    } both = {bits};
    return both.number;
}

static inline float sg_float_of(uint64_t bits)
{
    union {
        uint32_t bits;
        float number;
    } both = {(uint32_t)bits};
    return both.number;
}

static inline double sg_farg(const struct sg_call *call, unsigned n)
{
    return sg_double_of(sg_farg_bits(call, n));
}

static inline float sg_farg_float(const struct sg_call *call, unsigned n)
{
    return sg_float_of(sg_farg_bits(call, n));
}

static inline double sg_fresult(const struct sg_call *call)
{
    return sg_double_of(sg_fresult_bits(call));
}

static inline float sg_fresult_float(const struct sg_call *call)
{
    return sg_float_of(sg_fresult_bits(call));
}
#endif

/* An integer or pointer result (exit). Of one that is narrower than 64 bits the upper bits are anybody's: cast it. */
static inline uint64_t sg_result(const struct sg_call *call)
{
    return call->result;
}

/* Gives a record to Ops.events(). Returns 0 if there was no room for it: it is counted as dropped. */
static inline int sg_emit(struct sg_call *call, const void *record, uint64_t size)
{
    return call->emit(call, record, size);
}

#endif
