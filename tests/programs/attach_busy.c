/*
 * Threads that work without end in functions that call each other, and check every result: to be attached to and left
 * again and again. A line at stdin ends it. `threads` is the first argument; with a second one, `malloc`, the threads
 * allocate and free all the time as well; with `nap` they sleep for a millisecond in each round.
 */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static atomic_int stop, working;
static atomic_long rounds, wrong;
static int allocate, nap;

TRACED int leaf(int x)
{
    return x * 3 + 1;
}

TRACED double halve(double x)
{
    return x / 2;
}

TRACED int recurse(int depth)
{
    return depth == 0 ? 0 : 1 + recurse(depth - 1);
}

/* The whole of it is a loop that begins where the function begins. */
TRACED int loop(int n, int sum)
{
    do {
        sum += n;
    } while (--n > 0);
    return sum;
}

TRACED int tail(int x)
{
    return leaf(x + 1);
}

TRACED int middle(int x)
{
    int a = leaf(x), b = tail(x);
    return a + b + recurse(x % 7) + (int)halve(2.0 * x);
}

/* A call at the very first byte: where a function is hooked by a jump that shares its bytes with the call. */
extern int begins_with_call(int x);
__asm__(".text\n.type begins_with_call, @function\nbegins_with_call:\n.cfi_startproc\n\tcall leaf\n\tadd $1, %eax\n"
        "\tret\n.cfi_endproc\n.size begins_with_call, . - begins_with_call\n");

static int expected(int x)
{
    return (x * 3 + 1) + ((x + 1) * 3 + 1) + x % 7 + x;
}

static void *work(void *unused)
{
    (void)unused;
    working++;
    for (int x = 0; !stop; x = (x + 1) % 1000) {
        if (middle(x) != expected(x) || loop(50, x) != 1275 + x || begins_with_call(x) != x * 3 + 2)
            wrong++;
        if (allocate) {
            char *memory = malloc(16 + (size_t)x);
            memset(memory, x, 16 + (size_t)x);
            if (memory[15] != (char)x)
                wrong++;
            free(memory);
        }
        if (nap)
            usleep(1000);
        rounds++;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 4;
    pthread_t threads[256];
    char line[16];
    nap = argc > 2 && !strcmp(argv[2], "nap");
    allocate = argc > 2 && !strcmp(argv[2], "malloc");
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    while (working < count)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        wrong += 1000000;
    stop = 1;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("wrong %ld worked %d\n", (long)wrong, rounds > 0);
    return wrong != 0;
}
