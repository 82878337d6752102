/*
 * For each line `round` at stdin: loads the library that the argument names, uses it and unloads it, three times, the last time at
 * another place than before; then it answers `done`. Meanwhile two threads work in functions of the program, and every result
 * is checked. `load` loads it, uses it and keeps it; `use` uses it once more and `unload` unloads it.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS = 50, WORKERS = 2, PAGE = 4096 };

static atomic_int stop;
static atomic_long wrong;
static char **arguments;
static void *library;

TRACED long step(long x)
{
    return x * 3 + 1;
}

static void *work(void *unused)
{
    (void)unused;
    for (long x = 0; !stop; x++) {
        wrong += step(x) != x * 3 + 1;
        usleep(200);
    }
    return NULL;
}

static void use(void)
{
    long (*function)(long) = (long (*)(long))dlsym(library, "library_function");
    long (*first)(long) = (long (*)(long))dlsym(library, "library_first_call");
    EXPECT(function != NULL && first != NULL);
    for (long x = 0; x < CALLS; x++) {
        EXPECT(function(x) == 3 * x + 5 + x % 5);
        EXPECT(first(x) == x + 12);
    }
}

static char *load(void)
{
    const struct link_map *map;
    library = dlopen(arguments[1], RTLD_NOW);
    EXPECT(library != NULL);
    EXPECT(dlinfo(library, RTLD_DI_LINKMAP, &map) == 0);
    use();
    return (char *)map->l_addr;
}

static void do_round(void)
{
    char *first = load(), *again, *elsewhere;
    EXPECT(dlclose(library) == 0);
    again = load();
    EXPECT(again == first);
    EXPECT(dlclose(library) == 0);
    EXPECT(mmap(first, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == first);
    elsewhere = load();
    EXPECT(elsewhere != first);
    EXPECT(dlclose(library) == 0);
    EXPECT(munmap(first, PAGE) == 0);
}

int main(int argc, char **argv)
{
    char line[16];
    pthread_t workers[WORKERS];
    rounds_of(1, argv, argc);
    arguments = argv;
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&workers[i], NULL, work, NULL);
    puts("ready");
    while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "end\n") != 0) {
        if (strcmp(line, "round\n") == 0)
            do_round();
        else if (strcmp(line, "load\n") == 0)
            load();
        else if (strcmp(line, "use\n") == 0)
            use();
        else if (strcmp(line, "unload\n") == 0)
            EXPECT(dlclose(library) == 0);
        puts("done");
    }
    stop = 1;
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    EXPECT(wrong == 0);
    return finish();
}
