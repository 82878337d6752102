/*
 * The agent's C code, hosted, for ThreadSanitizer: threads make traced calls by its slow halves, as the assembly paths would,
 * while a controller registers and takes off users in the order of src/shadowgraph/agent/registry.py. Calls count themselves,
 * so that what users have seen can be held against what there was.
 *
 *     harness THREADS ROUNDS
 *
 * Built with -DROW_LAST it leads calls to users before these are whole, with -DNO_WAITING it gives slots away in which threads are
 * still busy: mistakes that the detector must find.
 *
 * What the detector is not shown, since it knows neither membarrier(2) nor words of one instruction: the words of the registry that
 * threads look at whenever they like (set_word), and the instructions that the agent has in assembly. What it is shown: rows,
 * ranks and pools of users, which must be written before anybody can come there, and be left before they are given to others.
 */
#include "frames.h"
#include "shadowgraph/ops.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the assembly has otherwise. */
struct sg_frame sg_frames[SG_FRAMES];
char sg_sites[SG_FRAMES * SG_STRIDE];
char sg_enter[1], sg_enter_end[1], sg_enter_aside[1], sg_enter_aside_end[1], sg_enter_from_caller[1], sg_enter_for_true_return[1];
char sg_enter_general[1], sg_enter_count[1], sg_enter_count_and_record[1], sg_enter_measure[1], sg_enter_recorders[1], sg_enter_frugal[1];
char sg_return[1], sg_return_end[1], sg_return_aside[1], sg_return_aside_end[1];
char sg_guard_entry[1], sg_guard_restorer[1];

int sg_handler_run(struct sg_call *call, uint64_t address, uint64_t *way_out)
{
    (void)way_out;
    return ((int (*)(struct sg_call *))address)(call);
}

struct sg_frame *sg_enter_slow(uint64_t *slot, struct sg_function *function, struct sg_entry_registers *registers);
void sg_exit_slow(struct sg_frame *frame, uint64_t *slot, uint64_t recorded, struct sg_exit_registers *registers);

#define FUNCTIONS 4
#define DEPTH 5
#define CALLER 0x1000 /* a return address that is no site's */

static atomic_int stop;
static atomic_long made, entered, left, wrong, failures;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            fprintf(stderr, "%d: not so: %s\n", __LINE__, #condition);                                                 \
        }                                                                                                              \
    } while (0)

/* A word that threads read without asking anybody: one store. */
static void set_word(uint64_t *word, uint64_t value)
{
    __asm__ volatile("movq %1, %0" : "=m"(*word) : "r"(value));
}

static void set_bit(uint64_t *mask, uint32_t slot, int on)
{
    set_word(mask, on ? *mask | 1ull << slot : *mask & ~(1ull << slot));
}

/* --- handlers --- */

static int on_entry(struct sg_call *call)
{
    entered++;
    *(uint64_t *)call->data = sg_arg(call, 0);
    for (uint64_t i = 0; i < call->instance_size / 8; i++)
        ((uint64_t *)call->instance)[i] = sg_arg(call, 0);
    return sg_arg(call, 0) % 3 != 0;
}

static void on_exit_of(struct sg_call *call)
{
    left++;
    if (*(uint64_t *)call->data != call->result)
        wrong++;
    for (uint64_t i = 0; i < call->instance_size / 8; i++)
        if (((uint64_t *)call->instance)[i] != call->result)
            wrong++;
}

/* --- threads that call --- */

__attribute__((noinline)) static void traced(uint64_t number, int depth)
{
    volatile uint64_t place = CALLER;
    struct sg_entry_registers entry = {.rdi = number, .rsi = 1};
    struct sg_exit_registers leaving = {.rax = number};
    struct sg_frame *frame = sg_enter_slow((uint64_t *)&place, sg_functions + 1 + number % FUNCTIONS, &entry);
    if (frame)
        place = sg_site_return(frame);
    made++;
    if (depth)
        traced(number + 1, depth - 1);
    if (frame)
        sg_exit_slow(frame, (uint64_t *)&place, 0, &leaving);
    if (place != CALLER)
        wrong++;
}

/* Whoever learns from the kernel that a thread is dead comes after all that it has done. */
static void *end_thread(void)
{
    struct sg_thread *thread = sg_thread_word();
    if (thread)
        SG_BEFORE(&thread->shared->tid);
    return 0;
}

static void *call(void *first)
{
    for (uint64_t number = (uint64_t)first; !stop; number += 7)
        traced(number, DEPTH);
    return end_thread();
}

static void *call_for_a_while(void *first)
{
    for (uint64_t i = 0; i < 20; i++)
        traced((uint64_t)first + i, DEPTH);
    return end_thread();
}

/* --- the controller --- */

struct plan {
    uint32_t kind, value, instances;
    int at_entry, at_exit, with_data, shares_counter;
};

static const struct plan plans[] = {
    {SG_USER_COUNTER, 0, 0, 0, 0, 0, 1},
    {SG_USER_TOTALS, SG_VALUE_DURATION, 0, 0, 1, 0, 0},
    {SG_USER_HISTOGRAM, SG_VALUE_RESULT, 0, 0, 1, 0, 0},
    {SG_USER_HISTOGRAM, SG_VALUE_ARGUMENT, 0, 1, 0, 0, 0},
    {SG_USER_HANDLER, 0, 0, 1, 1, 1, 0},
    {SG_USER_HANDLER, 0, 3, 1, 1, 1, 0},
    {SG_USER_HANDLER, 0, 100, 1, 1, 1, 0},
};
#define PLANS (sizeof plans / sizeof *plans)

static void lead_to(uint32_t slot)
{
    set_bit(&sg_registry->live, slot, 1);
    for (uint32_t i = 1; i <= FUNCTIONS; i++)
        __atomic_store_n(&sg_functions[i].users[0], sg_functions[i].users[0] | 1ull << slot, __ATOMIC_RELEASE);
    __atomic_store_n(&sg_registry->armed, sg_registry->armed | 1ull << slot, __ATOMIC_RELEASE);
}

static void write_row(uint32_t slot, const struct plan *plan, uint64_t at, uint64_t cells)
{
    sg_registry->users[slot] = (struct sg_user){
        .kind = plan->kind,
        .value = plan->value,
        .data_size = plan->with_data ? 8 : 0,
        .entry = (uint64_t)on_entry,
        .exit = (uint64_t)on_exit_of,
        .first_cell = cells,
        .cell_table = at,
        .instances = plan->instances,
        .instance_size = plan->instances ? 256 : 0,
        .instances_at = at + 64,
    };
}

/* Registry.add(): the row is whole before anybody is led to it. */
static void add(uint32_t slot, const struct plan *plan)
{
    struct sg_registry *r = sg_registry;
    uint64_t at = 64 + (uint64_t)slot * (1 << 20), cells = SG_COUNTER_CELLS + (uint64_t)slot * 32 * SG_PAGE_CELLS;
    __atomic_store_n(&r->epoch, r->epoch + 1, __ATOMIC_RELEASE);
    set_word(&r->epochs[slot], r->epoch);
    uint32_t *table = (uint32_t *)(sg_pool + at);
    table[0] = FUNCTIONS + 1;
    for (uint32_t i = 1; i <= FUNCTIONS; i++)
        table[i] = (uint32_t)(cells + (i - 1) * 2 * SG_HISTOGRAM_CELLS);
    struct sg_instances *pool = (struct sg_instances *)(sg_pool + at + 64);
    for (uint64_t *word = (uint64_t *)pool; word < (uint64_t *)(pool + 1) + plan->instances; word++)
        *word = 0;
#ifndef ROW_LAST
    write_row(slot, plan, at, cells);
#endif
    for (uint32_t i = 0; i < sg_arena->threads; i++)
        for (uint32_t word = 0; word < sizeof(struct sg_losses) / 8; word++)
            set_word((uint64_t *)&sg_losses[i * SG_USERS + slot] + word, 0);
    set_bit(&r->at_entry, slot, plan->at_entry);
    set_bit(&r->at_exit, slot, plan->at_exit);
    set_bit(&r->counters, slot, plan->shares_counter);
    set_bit(&r->with_data, slot, plan->with_data);
    set_bit(&r->with_instances, slot, plan->instances > 0);
    set_bit(&r->timed, slot, plan->kind == SG_USER_TOTALS || plan->kind == SG_USER_HANDLER);
    set_bit(&r->simple, slot, plan->value == 0 && !plan->instances);
    lead_to(slot);
#ifdef ROW_LAST
    write_row(slot, plan, at, cells);
#endif
}

/* Registry.remove() and settle(): the slot and what belongs to it are nobody's when no thread is busy for it. */
static void remove_and_settle(uint32_t slot)
{
    struct sg_registry *r = sg_registry;
    uint64_t busy;
    __atomic_store_n(&r->armed, r->armed & ~(1ull << slot), __ATOMIC_RELEASE);
    for (uint32_t i = 1; i <= FUNCTIONS; i++)
        __atomic_store_n(&sg_functions[i].users[0], sg_functions[i].users[0] & ~(1ull << slot), __ATOMIC_RELEASE);
    uint64_t *masks[] = {&r->live, &r->at_entry, &r->at_exit, &r->counters, &r->with_data, &r->with_instances, &r->timed, &r->simple};
    for (uint32_t i = 0; i < sizeof masks / sizeof *masks; i++)
        set_bit(masks[i], slot, 0);
#ifdef NO_WAITING
    return;
#endif
    do {
        syscall(SYS_membarrier, 1 /* GLOBAL */, 0, 0);
        busy = 0;
        for (uint32_t i = 0; i < sg_arena->threads; i++) {
            uint64_t now;
            __asm__ volatile("movq %1, %0" : "=r"(now) : "m"(sg_shared_threads[i].busy));
            busy |= now;
            SG_BEHIND(&sg_shared_threads[i].busy);
        }
    } while (busy >> slot & 1);
}

static void start_agent(void)
{
    sg_settings.segment_size = 4096;
    sg_settings.segments = 64;
    sg_settings.threads = 256;
    sg_settings.chunks = 1024;
    EXPECT(sg_start() > 0);
    for (uint32_t i = 1; i <= FUNCTIONS; i++)
        sg_functions[i] = (struct sg_function){.id = i, .cell = i};
}

/* The sum of all cells with numbers from `low` to below `high`. */
static uint64_t counted(uint64_t low, uint64_t high)
{
    uint64_t sum = 0;
    for (uint32_t page = 0; page < sg_arena->page_end; page++)
        for (uint64_t cell = 0, number = (uint64_t)sg_pages[page].number * SG_PAGE_CELLS; cell < SG_PAGE_CELLS; cell++)
            if (number + cell >= low && number + cell < high)
                sum += sg_cells[(uint64_t)page * SG_PAGE_CELLS + cell];
    return sum;
}

/* Calls are made with no user, with a counter around everything, and with users that come and go. */
int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 8, rounds = argc > 2 ? atol(argv[2]) : 20;
    pthread_t threads[64], passing;
    start_agent();
    for (long i = 0; i < count; i++)
        pthread_create(&threads[i], 0, call, (void *)(i * 1000));
    for (long round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < PLANS; i++) {
            struct plan plan = plans[(i + round) % PLANS];
            if (round % 2) /* then quick.c serves most users */
                plan.instances = 0;
            add(1 + i, &plan);
        }
        pthread_create(&passing, 0, call_for_a_while, (void *)round);
        usleep(2000);
        for (uint32_t i = 0; i < PLANS; i++)
            remove_and_settle(1 + (i * 3 + (uint32_t)round) % PLANS);
        pthread_join(passing, 0);
    }
    stop = 1;
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], 0);
    EXPECT(wrong == 0);
    EXPECT(made > 1000);
    EXPECT(entered > 100);
    EXPECT(left > 100);
    EXPECT(counted(0, SG_COUNTER_CELLS) > 100);
    EXPECT(counted(SG_COUNTER_CELLS, SG_PAGES * SG_PAGE_CELLS) > 100);
    puts(failures ? "wrong" : "OK");
    return failures != 0;
}
