/* For each line at stdin: opens the library that the argument names, calls its function, prints what that gives, closes it. */
#include "check.h"

#include <dlfcn.h>

int main(int argc, char **argv)
{
    char line[16];
    puts("ready");
    fflush(stdout);
    while (argc > 1 && fgets(line, sizeof line, stdin) && line[0] != 'e') {
        void *library = dlopen(argv[1], RTLD_NOW);
        EXPECT(library != NULL);
        long (*function)(long) = (long (*)(long))dlsym(library, "library_function");
        printf("%ld\n", function(40));
        fflush(stdout);
        dlclose(library);
    }
    return finish();
}
