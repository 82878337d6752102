/*
 * Keeps its own list of the calls in flight: each thread notes every function it enters and leaves, through
 * -finstrument-functions. Whoever stops the program at any moment reads `oracle_lists` and has what a stack trace must show.
 *
 * Calls nest through recursion, callbacks from qsort, signal handlers, functions left by exceptions, and coroutines
 * (a list each). It runs until it is killed, or for as many rounds as the first argument says.
 */
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define UNSEEN __attribute__((no_instrument_function))
#define CALLED __attribute__((noinline, noclone))

enum { LISTS = 16, DEPTH = 1000, THREADS = 3 };

extern "C" { /* plain names */

struct List {
    long tid; /* the thread that is on this list now, 0: nobody */
    volatile long depth;
    void *volatile functions[DEPTH];
};

List oracle_lists[LISTS];
volatile long oracle_ready;
static __thread List *volatile list;
static __thread long own_tid;

/* The depth first: a signal handler that comes in between notes its own calls above. */
UNSEEN void __cyg_profile_func_enter(void *function, void *)
{
    List *mine = list;
    if (!mine)
        return;
    long depth = mine->depth;
    mine->depth = depth + 1;
    __asm__ volatile("" ::: "memory");
    mine->functions[depth] = function;
}

UNSEEN void __cyg_profile_func_exit(void *, void *)
{
    if (list)
        list->depth--;
}

static volatile long sink;
static __thread uint32_t state;

UNSEEN static uint32_t random_number(uint32_t below)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
}

CALLED static long leaf(long n) { return n * 7 + 1; }

CALLED static long deep(long n) { return n ? deep(n - 1) + leaf(n) : leaf(0); }

CALLED static int compares(const void *left, const void *right)
{
    return static_cast<int>(leaf(*static_cast<const int *>(left)) - leaf(*static_cast<const int *>(right)));
}

CALLED static void sorts()
{
    int numbers[20];
    for (int &number : numbers)
        number = static_cast<int>(random_number(1000));
    qsort(numbers, 20, sizeof *numbers, compares);
    sink = numbers[0];
}

CALLED static void throws(long n)
{
    if (n == 0)
        throw n;
    throws(n - 1);
    sink = n;
}

CALLED static void catches()
{
    try {
        throws(5);
    } catch (long) {
        sink = leaf(3);
    }
}

/* Coroutines: two contexts that take turns; each has a list of its own. */
struct Coroutine {
    ucontext_t context, back;
    List *own, *caller;
    char stack[64 * 1024];
};

/* The list changes with the stack; while this function is on the stack of a running thread, the two need not agree. */
UNSEEN CALLED static void switches(Coroutine *coroutine, bool inwards)
{
    List *from = list, *to = inwards ? coroutine->own : coroutine->caller;
    if (inwards)
        coroutine->caller = from;
    to->tid = own_tid;
    from->tid = 0;
    list = to;
    if (inwards)
        swapcontext(&coroutine->back, &coroutine->context);
    else
        swapcontext(&coroutine->context, &coroutine->back);
    from->tid = own_tid;
    to->tid = 0;
    list = from;
}

CALLED static void yields(Coroutine *coroutine, long n)
{
    sink = leaf(n);
    switches(coroutine, false);
}

UNSEEN CALLED static void coroutine_body(unsigned low, unsigned high)
{
    Coroutine *coroutine = reinterpret_cast<Coroutine *>(static_cast<uintptr_t>(low) | static_cast<uintptr_t>(high) << 32);
    for (long n = 0;; n++) {
        sink = deep(3);
        yields(coroutine, n);
    }
}

CALLED static void resumes(Coroutine *coroutine)
{
    sink = leaf(1);
    switches(coroutine, true);
}

CALLED static void handles(int)
{
    for (long i = 0; i < 100; i++)
        sink = deep(20);
}

UNSEEN CALLED static void works(long rounds, List *own, List *coroutine_list, bool with_coroutine)
{
    static __thread Coroutine *coroutine;
    own->tid = own_tid = syscall(SYS_gettid);
    list = own;
    state = static_cast<uint32_t>(own - oracle_lists) + 1;
    if (with_coroutine) {
        coroutine = static_cast<Coroutine *>(calloc(1, sizeof *coroutine));
        coroutine->own = coroutine_list;
        getcontext(&coroutine->context);
        coroutine->context.uc_stack.ss_sp = coroutine->stack;
        coroutine->context.uc_stack.ss_size = sizeof coroutine->stack;
        uintptr_t address = reinterpret_cast<uintptr_t>(coroutine);
        makecontext(&coroutine->context, reinterpret_cast<void (*)()>(coroutine_body), 2, static_cast<unsigned>(address),
                    static_cast<unsigned>(address >> 32));
    }
    for (long i = 0; rounds < 0 || i < rounds; i++) {
        sink = deep(random_number(45));
        sorts();
        catches();
        if (with_coroutine)
            resumes(coroutine);
    }
}

UNSEEN CALLED static void *runs(void *own)
{
    List *mine = static_cast<List *>(own);
    __atomic_add_fetch(&oracle_ready, 1, __ATOMIC_SEQ_CST);
    works(-1, mine, mine + 1, true);
    return nullptr;
}

UNSEEN int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : -1;
    if (rounds < 0) {
        pthread_t thread;
        struct itimerval timer = {{0, 2000}, {0, 2000}};
        list = nullptr;
        signal(SIGALRM, handles);
        for (long i = 0; i < THREADS; i++)
            pthread_create(&thread, nullptr, runs, &oracle_lists[2 + 2 * i]);
        setitimer(ITIMER_REAL, &timer, nullptr);
        while (oracle_ready < THREADS)
            usleep(100);
    }
    oracle_ready++;
    works(rounds, &oracle_lists[0], &oracle_lists[1], true);
    return 0;
}
}
