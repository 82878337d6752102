/*
 * The run-time half of -finstrument-functions: an exact log of every function entered and left, in order, for each thread.
 * Linked into the program under test; writes CALL_LOG_PATH (a macro) when the program ends.
 *
 * The file is a sequence of 64-bit words: thread number << 48 | address << 1 | 1 on entry, | 0 on exit; the first word is
 * the address of main in this run.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define QUIET __attribute__((no_instrument_function))

static uint64_t *words;
static uint64_t count, room;
static uint64_t threads;
static __thread uint64_t number;
static char lock;

extern int main(int, char **);
void __cyg_profile_func_enter(void *function, void *caller) QUIET;
void __cyg_profile_func_exit(void *function, void *caller) QUIET;

static QUIET void append(void *function, uint64_t entered)
{
    while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE))
        continue;
    if (number == 0)
        number = ++threads;
    if (count == room) {
        room = room != 0 ? 2 * room : 1 << 16;
        words = realloc(words, room * sizeof *words);
        if (words == NULL)
            abort();
    }
    words[count++] = number << 48 | (uint64_t)(uintptr_t)function << 1 | entered;
    __atomic_clear(&lock, __ATOMIC_RELEASE);
}

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    append(function, 1);
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)caller;
    append(function, 0);
}

static QUIET __attribute__((destructor(101))) void write_log(void)
{
    uint64_t base = (uint64_t)(uintptr_t)main;
    FILE *file = fopen(CALL_LOG_PATH, "wb");
    if (file == NULL || fwrite(&base, sizeof base, 1, file) != 1 || fwrite(words, sizeof *words, count, file) != count)
        abort();
    fclose(file);
}
