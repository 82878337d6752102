/* dlopen and dlclose in a loop: the library's constructor, its functions and its destructor are all seen, each time. */
#include <dlfcn.h>
#include "check.h"

TRACED long calls(long (*function)(long), long x) { return function(x); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200);
    for (long i = 0; i < rounds; i++) {
        void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            printf("%s\n", dlerror());
            return 2;
        }
        long (*function)(long) = (long (*)(long))dlsym(library, "library_function");
        EXPECT(calls(function, i) == i + 2);
        dlclose(library);
    }
    return finish();
}
