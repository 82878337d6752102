/*
 * A thread that enters three functions, one from the other, when it is told to (`enter`), and stays there until it is told
 * to return (`leave`). Each result is checked. `end` ends the program.
 */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

static int enter[2], leave[2], told[2];

TRACED int inner(int x)
{
    char byte;
    if (write(told[1], "e", 1) != 1 || read(leave[0], &byte, 1) != 1)
        return -1000;
    return x + 1;
}

TRACED int middle(int x)
{
    return inner(x) + 1;
}

TRACED int outer(int x)
{
    return middle(x) + 1;
}

static void *run(void *unused)
{
    char byte;
    (void)unused;
    while (read(enter[0], &byte, 1) == 1) {
        char result = (char)outer(0);
        if (write(told[1], &result, 1) != 1)
            break;
    }
    return NULL;
}

int main(void)
{
    pthread_t thread;
    char line[16], byte;
    if (pipe(enter) || pipe(leave) || pipe(told))
        return 2;
    pthread_create(&thread, NULL, run, NULL);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        int entering = strcmp(line, "enter\n") == 0;
        if (write(entering ? enter[1] : leave[1], "x", 1) != 1 || read(told[0], &byte, 1) != 1)
            return 2;
        if (entering)
            puts("entered");
        else
            printf("left %d\n", byte);
        fflush(stdout);
    }
    close(enter[1]);
    pthread_join(thread, NULL);
    puts("bye");
    return 0;
}
