/* Loads a library of the system again and again. */
#include "check.h"

#include <dlfcn.h>

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 5);
    for (long i = 0; i < rounds; i++) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        EXPECT(library != NULL);
        EXPECT(library && dlsym(library, "cos") != NULL);
        EXPECT(library && dlclose(library) == 0);
    }
    return finish();
}
