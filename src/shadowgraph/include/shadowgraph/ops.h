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

/* Members are read, not written: what they say is for the other users of the call, too. */
#ifndef SG_GIVEN
#define SG_GIVEN const
#endif

/*
 * Looking at the clock costs more than all the rest of a short handler, and looking at vector registers costs a little. So
 * handlers that are given as source are first compiled without these members, and told no such things if that succeeds.
 */
#ifdef SG_WITHOUT_TIME
#define time sg_nobody_asks_for_time
#define duration sg_nobody_asks_for_duration
#endif
#ifdef SG_WITHOUT_VECTORS
#define vectors sg_nobody_asks_for_vectors
#endif

struct sg_call {
    SG_GIVEN uint64_t function;            /* the number of the function; Ops.functions_by_number names it */
    const uint64_t *SG_GIVEN arguments;    /* entry: rdi, rsi, rdx, rcx, r8, r9; exit: 0 */
    const uint64_t *SG_GIVEN stack;        /* entry: the arguments on the stack; exit: 0 */
    const uint64_t (*SG_GIVEN vectors)[2]; /* the low halves of xmm0 to xmm7 at the entry, of xmm0 and xmm1 at the exit */
    SG_GIVEN uint64_t result, result_high; /* exit: rax, rdx */
    SG_GIVEN uint64_t return_address;      /* where the function returns to, in the program */
    void *SG_GIVEN data;                   /* data_size bytes of this user and this call, not cleared; 0 if it asked for none */
    SG_GIVEN uint64_t data_size;
    SG_GIVEN uint64_t time;                /* when the call was entered, in ticks of the time stamp counter; at the entry the same
                                              for all users of the call */
    SG_GIVEN uint64_t duration;            /* exit: ticks since */
    SG_GIVEN uint32_t thread, process;
    int (*SG_GIVEN emit)(struct sg_call *call, const void *record, uint64_t size);
    SG_GIVEN uint64_t user;                /* the agent's own */
    void *SG_GIVEN instance;               /* instance_size bytes of this user and this call, as the last call to have had them
                                              left them, zeros at first; 0 if it asked for none */
    SG_GIVEN uint64_t instance_size;
};

#ifdef SG_WITHOUT_TIME
#undef time
#undef duration
#endif
#ifdef SG_WITHOUT_VECTORS
#undef vectors
#endif

/* The n-th integer or pointer argument, counted from 0 (entry). */
static inline uint64_t sg_arg(const struct sg_call *call, unsigned n)
{
    return n < 6 ? call->arguments[n] : call->stack[n - 6];
}

#ifndef SG_WITHOUT_VECTORS
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
