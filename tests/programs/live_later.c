/*
 * Does what lines at stdin say: `load` loads zlib and calls a function of it three times, `call` calls it once more, `unload` unloads
 * it again, `fork` has a child load it, call it once and end, `exec` executes the program anew.
 */
#include "check.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

static void *library;

TRACED long step(long number)
{
    return number + 1;
}

static void call(int times)
{
    const char *(*version)(void) = (const char *(*)(void))dlsym(library, "zlibVersion");
    EXPECT(version != NULL);
    for (int i = 0; i < times; i++)
        EXPECT(version()[0] == '1');
}

static void load(int times)
{
    library = dlopen("libz.so.1", RTLD_NOW);
    EXPECT(library != NULL);
    call(times);
}

static void load_in_child(void)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        load(1);
        _exit(failures);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
    char line[16];
    rounds_of(argc, argv, 1);
    puts("ready");
    while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "end\n") != 0) {
        EXPECT(step(1) == 2);
        if (strcmp(line, "load\n") == 0) {
            load(3);
        } else if (strcmp(line, "fork\n") == 0) {
            load_in_child();
        } else if (strcmp(line, "call\n") == 0) {
            call(1);
        } else if (strcmp(line, "unload\n") == 0) {
            EXPECT(dlclose(library) == 0);
        } else if (strcmp(line, "exec\n") == 0) {
            execv("/proc/self/exe", argv);
        }
        puts("done");
    }
    return finish();
}
