/* posix_spawn, system() and popen from traced functions: results and output as without a tracer. */
#include <spawn.h>
#include <sys/wait.h>
#include "check.h"

extern char **environ;

TRACED int spawns(const char *program)
{
    pid_t child;
    int status = -1;
    char *arguments[] = {(char *)program, NULL};
    if (posix_spawn(&child, program, NULL, NULL, arguments, environ) != 0)
        return -1;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

TRACED int runs(const char *command) { return WEXITSTATUS(system(command)); }

TRACED int reads(const char *command, char *line, int size)
{
    FILE *pipe = popen(command, "r");
    if (pipe == NULL || fgets(line, size, pipe) == NULL)
        return -1;
    return pclose(pipe);
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 5);
    char line[64];
    for (long i = 0; i < rounds; i++) {
        EXPECT(spawns("/bin/true") == 0);
        EXPECT(spawns("/bin/false") == 1);
        EXPECT(spawns("/nowhere") == -1);
        EXPECT(runs("exit 7") == 7);
        EXPECT(reads("echo hello; true", line, sizeof line) == 0);
        EXPECT(strcmp(line, "hello\n") == 0);
    }
    return finish();
}
