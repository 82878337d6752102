// Calls in every manner, each counted by the function itself: what a recorder says of them must add up to that number.
//
//     exhaustion MANNER THREADS ROUNDS DEPTH
//
// MANNER: leaves (calls in a row), deep (recursion to DEPTH), tails (chains of tail calls), throws (exceptions through
// DEPTH frames), jumps (longjmp over DEPTH frames), handlers (a signal in every fourth call, whose handler calls), held
// (each thread's last call begins and waits for all others), short (threads one after the other, ROUNDS calls in each).
// All threads run at once and end together. Prints the number of calls, and a checksum that does not depend on anything.
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <vector>

#define COUNTED __attribute__((noipa))

static std::atomic<long> calls, sum;
static thread_local long counted, added;
static thread_local jmp_buf back;
static long rounds, depth;
static const char *manner;
static pthread_barrier_t all;

// Keeps a recursion from becoming a loop.
static inline __attribute__((always_inline)) long one_more(long value)
{
    __asm__ volatile("" : "+r"(value));
    return value + 1;
}

extern "C" {
COUNTED long leaf(long value)
{
    counted++;
    return value * 3 + 1;
}

COUNTED long deep(long left)
{
    counted++;
    return left <= 1 ? leaf(left) : one_more(deep(left - 1));
}

COUNTED long tail_end(long value)
{
    counted++;
    return value ^ 5;
}

COUNTED long tail_middle(long value)
{
    counted++;
    __asm__ volatile("");
    return tail_end(value + 1);
}

COUNTED long tail_begin(long value)
{
    counted++;
    __asm__ volatile("");
    return tail_middle(value + 1);
}

COUNTED long throws(long left)
{
    counted++;
    if (left <= 1)
        throw left;
    return one_more(throws(left - 1));
}

COUNTED long catches(long left)
{
    counted++;
    try {
        return throws(left);
    } catch (long thrown) {
        return thrown + 1;
    }
}

COUNTED long jumps(long left)
{
    counted++;
    if (left <= 1)
        longjmp(back, 1);
    return one_more(jumps(left - 1));
}

COUNTED long lands(long left)
{
    counted++;
    return setjmp(back) == 0 ? jumps(left) : left;
}

COUNTED void on_signal(int)
{
    counted++;
    added += leaf(7);
}

COUNTED long raises(long value)
{
    counted++;
    if (value % 4 == 0)
        pthread_kill(pthread_self(), SIGUSR1);
    return value;
}

COUNTED long held(long value)
{
    counted++;
    pthread_barrier_wait(&all);
    return value;
}
}

static long once(long i)
{
    if (!std::strcmp(manner, "deep"))
        return deep(depth);
    if (!std::strcmp(manner, "tails"))
        return tail_begin(i);
    if (!std::strcmp(manner, "throws"))
        return catches(depth);
    if (!std::strcmp(manner, "jumps"))
        return lands(depth);
    if (!std::strcmp(manner, "handlers"))
        return raises(i);
    return leaf(i);
}

static void *work(void *)
{
    for (long i = 0; i < rounds; i++)
        added += once(i);
    if (!std::strcmp(manner, "held"))
        added += held(depth);
    calls += counted;
    sum += added;
    if (std::strcmp(manner, "short"))
        pthread_barrier_wait(&all);
    return nullptr;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    manner = argv[1];
    long threads = std::atol(argv[2]);
    rounds = std::atol(argv[3]);
    depth = std::atol(argv[4]);
    std::signal(SIGUSR1, on_signal);
    pthread_barrier_init(&all, nullptr, threads);
    std::vector<pthread_t> running(threads);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 28);
    for (auto &thread : running) {
        if (pthread_create(&thread, &attributes, work, nullptr) != 0)
            return 3;
        if (!std::strcmp(manner, "short"))
            pthread_join(thread, nullptr);
    }
    if (std::strcmp(manner, "short"))
        for (auto &thread : running)
            pthread_join(thread, nullptr);
    std::printf("calls=%ld sum=%ld\n", calls.load(), sum.load());
    return 0;
}
