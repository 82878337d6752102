/*
 * Three layouts of a shadow frame that several users share, in one process: layouts ROUNDS CALLS. Checks first that each calls
 * every user's entry in order and the wanted exits in reverse, and what becomes of a call in flight whose user goes. Prints a
 * line of JSON for that, and one for each layout and number of users: words of a frame and nanoseconds a call, by the thread's
 * own processor time, the best of the rounds.
 */
#define _GNU_SOURCE
#include "layouts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAYOUTS 3

_Static_assert(sizeof(struct user) == USER_SIZE && offsetof(struct user, leave) == USER_LEAVE, "known to the paths");
_Static_assert(sizeof(struct chain_frame) == CHAIN_SIZE && offsetof(struct chain_frame, slot) == CHAIN_SLOT, "so is this");

struct user users[MOST];

/* Few calls are in flight here. */
static struct chain_frame chain_frames[2 * MOST];
static struct list_frame list_frames[2];
static struct mask_frame mask_frames[2];
struct chain_frame *chain_top = chain_frames;
static struct list_frame *list_top = list_frames;
static struct mask_frame *mask_top = mask_frames;

/* The one function: who is on it. */
static uint32_t on_count, on[MOST];
static uint64_t on_mask;

/* The registry. */
static uint64_t generations[MOST], armed, live, epoch = 1, epochs[MOST];

/* --- the list --- */

int list_enter(uint64_t *slot)
{
    struct list_frame *frame = list_top;
    uint64_t count = 0;
    for (uint32_t i = 0; i < on_count; i++) {
        uint32_t user = on[i];
        uint64_t generation = __atomic_load_n(&generations[user], __ATOMIC_ACQUIRE);
        if (users[user].enter(slot))
            frame->users[count++] = generation << 8 | user;
    }
    if (!count)
        return 0;
    frame->original = *slot;
    frame->slot = (uint64_t)slot;
    frame->function = (uint64_t)on;
    frame->count = count;
    list_top++;
    return 1;
}

void list_leave(uint64_t *slot)
{
    struct list_frame *frame = list_top - 1;
    *slot = frame->original;
    for (uint64_t i = frame->count; i > 0; i--) {
        uint64_t user = frame->users[i - 1];
        if (__atomic_load_n(&generations[user & 255], __ATOMIC_ACQUIRE) == user >> 8)
            users[user & 255].leave(slot);
    }
    list_top = frame;
}

/* --- the mask --- */

int mask_enter(uint64_t *slot)
{
    uint64_t now, here, wanted = 0;
    do {
        now = __atomic_load_n(&epoch, __ATOMIC_ACQUIRE);
        here = on_mask & __atomic_load_n(&armed, __ATOMIC_ACQUIRE);
    } while (__atomic_load_n(&epoch, __ATOMIC_ACQUIRE) != now);
    for (; here; here &= here - 1) {
        uint32_t user = (uint32_t)__builtin_ctzll(here);
        wanted |= (uint64_t)(users[user].enter(slot) != 0) << user;
    }
    if (!wanted)
        return 0;
    *mask_top++ = (struct mask_frame){*slot, (uint64_t)slot, (uint64_t)on, wanted, now};
    return 1;
}

void mask_leave(uint64_t *slot)
{
    struct mask_frame *frame = mask_top - 1;
    *slot = frame->original;
    for (uint64_t rest = frame->users & live; rest;) {
        uint32_t user = 63 - (uint32_t)__builtin_clzll(rest);
        rest &= ~(1ull << user);
        if (epochs[user] <= frame->epoch)
            users[user].leave(slot);
    }
    mask_top = frame;
}

/* --- users --- */

static int enter_empty(uint64_t *slot)
{
    return slot != 0;
}

static void leave_empty(uint64_t *slot)
{
    __asm__ volatile("" : : "r"(slot));
}

/* Puts `count` users on the function, whose handlers these are; for the chain the last places are used. */
static void register_users(uint32_t count, int (*enter)(uint64_t *), void (*leave)(uint64_t *))
{
    on_count = count;
    on_mask = armed = live = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t user = MOST - count + i;
        users[user] = (struct user){enter, leave};
        generations[user]++;
        epochs[user] = ++epoch;
        on[i] = user;
        on_mask |= 1ull << user;
    }
    armed = live = on_mask;
}

/* --- the checks --- */

static char trace[2 * MOST + 1];
static uint32_t entered, left_by_successor;
static uint32_t skipped; /* mask: the entries, by their order, that return 0 */
static int goes;         /* the last user goes while the call is in flight, and its place is given to another one */

#define NAMED(number)                                                                                                      \
    static int enter_##number(uint64_t *slot)                                                                              \
    {                                                                                                                      \
        trace[strlen(trace)] = 'A' + number;                                                                               \
        return slot && !(skipped >> entered++ & 1);                                                                        \
    }                                                                                                                      \
    static void leave_##number(uint64_t *slot)                                                                             \
    {                                                                                                                      \
        trace[strlen(trace)] = slot ? 'a' + number : '?';                                                                  \
    }
NAMED(0)
NAMED(1)
NAMED(2)

static void leave_successor(uint64_t *slot)
{
    left_by_successor += slot != 0;
}

static const struct user named[] = {{enter_0, leave_0}, {enter_1, leave_1}, {enter_2, leave_2}};

__attribute__((noinline)) long leaf(long x)
{
    __asm__ volatile("" : "+r"(x));
    if (__builtin_expect(goes, 0)) {
        uint32_t user = MOST - 1;
        generations[user]++;
        epochs[user] = ++epoch;
        users[user] = (struct user){enter_empty, leave_successor};
    }
    return 3 * x + 7;
}

typedef long function(long x);

static function *start_of(int layout, uint32_t count)
{
    return layout == 0 ? chains[count] : layout == 1 ? enter_list : enter_mask;
}

static int expect(int layout, uint32_t skips, const char *expected)
{
    register_users(3, enter_empty, leave_empty);
    for (uint32_t i = 0; i < 3; i++)
        users[MOST - 3 + i] = named[i];
    memset(trace, 0, sizeof trace);
    entered = 0;
    skipped = skips;
    long result = start_of(layout, 3)(5);
    if (result == 22 && !strcmp(trace, expected))
        return 1;
    fprintf(stderr, "layouts: layout %d: %s instead of %s\n", layout, trace, expected);
    return 0;
}

static int check(int layout)
{
    if (!expect(layout, 0, "ABCcba") || !expect(layout, 2, "ABCca") || !expect(layout, 7, "ABC"))
        return 0;
    goes = 1;
    left_by_successor = 0;
    int right = expect(layout, 0, "ABCba");
    goes = 0;
    return right;
}

/* --- the figures --- */

static const char *const names[LAYOUTS] = {"chain", "list", "mask"};
static const uint32_t numbers[] = {1, 2, 4, 8, 16};
#define NUMBERS (sizeof numbers / sizeof *numbers)

static volatile long sink;

static size_t words(int layout, uint32_t count)
{
    if (layout == 0)
        return count * sizeof(struct chain_frame) / 8;
    return layout == 1 ? offsetof(struct list_frame, users) / 8 + count : sizeof(struct mask_frame) / 8;
}

static double measure(function *start, long calls)
{
    struct timespec before, after;
    long sum = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    for (long i = 0; i < calls; i++)
        sum += start(i);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    sink += sum;
    return ((double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec)) / (double)calls;
}

int main(int count, char **arguments)
{
    int rounds = count == 3 ? atoi(arguments[1]) : 0;
    long calls = count == 3 ? atol(arguments[2]) : 0;
    if (rounds < 1 || calls < 1) {
        fprintf(stderr, "usage: layouts ROUNDS CALLS\n");
        return 2;
    }
    for (int layout = 0; layout < LAYOUTS; layout++) {
        if (!check(layout))
            return 1;
        printf("{\"layout\": \"%s\", \"exits_to_successor\": %u}\n", names[layout], left_by_successor);
    }
    static double best[LAYOUTS + 1][NUMBERS];
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < NUMBERS; i++) {
            register_users(numbers[i], enter_empty, leave_empty);
            for (int layout = 0; layout <= LAYOUTS; layout++) {
                double taken = measure(layout < LAYOUTS ? start_of(layout, numbers[i]) : leaf, calls);
                if (!round || taken < best[layout][i])
                    best[layout][i] = taken;
            }
        }
    for (int layout = 0; layout < LAYOUTS; layout++)
        for (size_t i = 0; i < NUMBERS; i++)
            printf("{\"layout\": \"%s\", \"users\": %u, \"words\": %zu, \"ns\": %.3f, \"plain_ns\": %.3f}\n", names[layout],
                   numbers[i], words(layout, numbers[i]), best[layout][i], best[LAYOUTS][i]);
    return 0;
}
