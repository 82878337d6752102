/*
 * Does what lines at stdin say and answers each with one line: `fork` makes a child that does the same, `child LINE` has the newest
 * child do LINE and gives its answer, `open N` loads the library that the N-th argument names and says where, `call N K` calls its
 * function `count_N` K times, `close N` unloads it, `end` ends this process, and its children before.
 */
#include "check.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char **libraries;
static void *opened[10];

static FILE *to_child, *from_child;
static pid_t child;

static void end_child(void)
{
    int status = 1;
    if (!child)
        return;
    fputs("end\n", to_child);
    fclose(to_child);
    fclose(from_child);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    child = 0;
}

static long address_of(int number)
{
    char name[16];
    snprintf(name, sizeof name, "count_%d", number);
    return (long)dlsym(opened[number], name);
}

static void call(int number, int times)
{
    long (*count)(long) = (long (*)(long))address_of(number);
    for (int i = 0; i < times; i++)
        EXPECT(count(i) == i + number);
}

static void serve(FILE *in, FILE *out);

static void fork_child(void)
{
    int down[2], up[2];
    end_child();
    EXPECT(pipe(down) == 0 && pipe(up) == 0);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        FILE *in = fdopen(down[0], "r"), *out = fdopen(up[1], "w");
        close(down[1]);
        close(up[0]);
        serve(in, out);
        end_child();
        _exit(failures);
    }
    close(down[0]);
    close(up[1]);
    to_child = fdopen(down[1], "w");
    from_child = fdopen(up[0], "r");
}

static void serve(FILE *in, FILE *out)
{
    char line[64];
    int number = 0, times = 0;
    while (fgets(line, sizeof line, in) && strcmp(line, "end\n") != 0) {
        long answer = getpid();
        if (strcmp(line, "fork\n") == 0) {
            fork_child();
            answer = child;
        } else if (strncmp(line, "child ", 6) == 0) {
            fputs(line + 6, to_child);
            fflush(to_child);
            EXPECT(fgets(line, sizeof line, from_child) != NULL);
            answer = atol(line);
        } else if (sscanf(line, "open %d", &number) == 1) {
            opened[number] = dlopen(libraries[number], RTLD_NOW);
            EXPECT(opened[number] != NULL);
            answer = address_of(number);
        } else if (sscanf(line, "call %d %d", &number, &times) == 2) {
            call(number, times);
        } else if (sscanf(line, "close %d", &number) == 1) {
            EXPECT(dlclose(opened[number]) == 0);
        }
        fprintf(out, "%ld\n", answer);
        fflush(out);
    }
}

int main(int argc, char **argv)
{
    libraries = argv;
    rounds_of(1, argv, argc);
    puts("ready");
    fflush(stdout);
    serve(stdin, stdout);
    end_child();
    return finish();
}
