/* Functions that jump to dlsym, which finds its caller by its return address: RTLD_NEXT must not mean "after the tracer". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "check.h"

TRACED void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

TRACED void *looks_up(const char *name) { return next(name); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 20000);
    void *expected = dlsym(dlopen("libc.so.6", RTLD_NOW), "malloc");
    for (long i = 0; i < rounds; i++)
        EXPECT(looks_up("malloc") == expected);
    return finish();
}
