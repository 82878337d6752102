/*
 * Does what its arguments say, one after the other: a number calls step() so often, `exec` executes the program anew with
 * the arguments that follow, `thread` does so from another thread, `spawn` has a child do that with the next argument and
 * waits for it, `missing` and `text` try to execute what is not there, and what is no program, `line` waits for a line,
 * `fork` has a child go on, and ends as that does, and `other PROGRAM` executes that.
 */
#include "check.h"

#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

TRACED long step(long number)
{
    return number + 1;
}

static char *self;

static int status_of(pid_t child)
{
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void *execute(void *words)
{
    char **arguments = (char **)words - 1;
    arguments[0] = self;
    execv(self, arguments);
    EXPECT(!"executed");
    return NULL;
}

static void spawn(char *word)
{
    pid_t child;
    char *arguments[] = {self, word, NULL};
    EXPECT(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    EXPECT(status_of(child) == 0);
}

int main(int argc, char **argv)
{
    char line[16];
    setvbuf(stdout, NULL, _IOLBF, 1 << 12);
    self = argv[0];
    for (int i = 1; i < argc; i++) {
        pthread_t thread;
        if (strcmp(argv[i], "exec") == 0) {
            execute(argv + i + 1);
        } else if (strcmp(argv[i], "thread") == 0) {
            EXPECT(pthread_create(&thread, NULL, execute, argv + i + 1) == 0);
            pthread_join(thread, NULL);
        } else if (strcmp(argv[i], "spawn") == 0) {
            spawn(argv[++i]);
        } else if (strcmp(argv[i], "missing") == 0) {
            EXPECT(execl("/nowhere/to/be/found", "", NULL) == -1);
        } else if (strcmp(argv[i], "text") == 0) {
            EXPECT(execl("/etc/passwd", "", NULL) == -1);
        } else if (strcmp(argv[i], "line") == 0) {
            puts("ready");
            EXPECT(fgets(line, sizeof line, stdin) != NULL);
        } else if (strcmp(argv[i], "fork") == 0) {
            pid_t child = fork();
            if (child != 0)
                return status_of(child);
        } else if (strcmp(argv[i], "other") == 0) {
            execv(argv[i + 1], argv + i + 1);
            EXPECT(!"executed");
        } else {
            for (long count = atol(argv[i]); count > 0; count--)
                EXPECT(step(count) == count + 1);
        }
    }
    return finish();
}
