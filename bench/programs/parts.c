/*
 * What the entry path and the return path cost, and what parts of them do: the agent's own (with AGENT), or those of
 * parts.S, around one leaf and one recursion, beside the floor. One thread, no controller, and a buffer that is used over
 * and over again. Prints ns a call: the best of all rounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "state.h"

#define BUFFER 131072
#define FRAMES 32
#define FIB 10
#define FIB_CALLS 177

long traced_leaf(long), traced_fib(long), floor_leaf(long), floor_fib(long);
extern char traced_leaf_body[], traced_fib_body[], sg_enter[];

__thread struct sg_thread *sg_thread __attribute__((tls_model("initial-exec")));
uint64_t sg_minimal_ticks, sg_caller_low, sg_caller_size;
_Static_assert(sizeof(struct sg_function) == 64, "as parts.S has it");
struct sg_function functions[2] __attribute__((aligned(64)));
static struct sg_open opens[FRAMES];
static struct sg_thread thread;
static struct sg_shared_thread shared;
static char buffer[BUFFER] __attribute__((aligned(4096)));

void sg_enter_slow(void)
{
    fputs("the entry path has left its plain way\n", stderr);
    abort();
}

/* Known to the agent's paths, and never reached: nobody but a recorder is on these functions. */
void *sg_registry;
char *sg_areas;
struct sg_handlers_here sg_handlers_here;
struct sg_losses *sg_losses;

void sg_leave_measured(void)
{
    sg_enter_slow();
}

/* The buffer is full: the only reason there is. */
void sg_exit_slow(struct sg_frame *frame, uint64_t *slot, uint64_t recorded)
{
    if (recorded || thread.top != frame)
        abort();
    thread.rings[0].position = (uint64_t)buffer | (uint64_t)(SG_PLACES_END - 1 - BUFFER / SG_RECORD_SIZE) << 48;
    frame->open->function = 0;
    frame->slot = (uint64_t)SG_SLOT_FREE;
    thread.top = frame - 1;
    *slot = frame->original;
}

static void set_up(void)
{
    sg_thread = &thread;
    thread.top = sg_frames;
#ifdef AGENT
    thread.shared = &shared;
    thread.rings[0].position = SG_NO_PLACE;
#else
    thread.shared = (struct sg_shared_thread *)buffer;
    thread.rings[0].position = (uint64_t)buffer;
    thread.pages = (uint64_t **)(buffer + BUFFER);
    (void)shared;
#endif
    for (int i = 0; i < FRAMES; i++) {
        struct sg_frame *frame = sg_frames + i;
        frame->slot = (uint64_t)(i == 0 ? SG_SLOT_START : i == FRAMES - 1 ? SG_SLOT_END : SG_SLOT_FREE);
        frame->site = (uint64_t)sg_sites + (uint64_t)i * SG_STRIDE;
        frame->open = &opens[i];
        frame->bias = (uint64_t)i << SG_START_BITS;
    }
    char *bodies[] = {traced_leaf_body, traced_fib_body};
    for (uint32_t i = 0; i < 2; i++)
        functions[i] = (struct sg_function){.enter = (uint64_t)sg_enter, .body = (uint64_t)bodies[i], .id = i + 1};
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void measure(long (*function)(long), long argument, long times, long calls, double *best)
{
    double start = now_ns();
    long sum = 0;
    for (long i = 0; i < times; i++)
        sum += function(argument);
    __asm__ volatile("" : : "r"(sum));
    double ns = (now_ns() - start) / (double)(times * calls);
    *best = *best == 0 || ns < *best ? ns : *best;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 40, calls = argc > 2 ? atol(argv[2]) : 100000;
    double leaf = 0, fib = 0, leaf_floor = 0, fib_floor = 0;
    set_up();
    if (traced_leaf(5) != 22 || traced_fib(FIB) != 55)
        return 1;
    for (long i = 0; i < rounds; i++) {
        measure(floor_leaf, 3, calls, 1, &leaf_floor);
        measure(traced_leaf, 3, calls, 1, &leaf);
        measure(floor_fib, FIB, calls / FIB_CALLS + 1, FIB_CALLS, &fib_floor);
        measure(traced_fib, FIB, calls / FIB_CALLS + 1, FIB_CALLS, &fib);
    }
    printf("{\"leaf\": %.3f, \"leaf_floor\": %.3f, \"recursion\": %.3f, \"recursion_floor\": %.3f}\n", leaf, leaf_floor, fib, fib_floor);
    return 0;
}
