/* Executes the command behind `--` with exactly the environment entries before it, whatever they look like. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int at = 1;
    while (at < argc && strcmp(argv[at], "--") != 0)
        at++;
    if (at + 1 >= argc)
        return 2;
    argv[at] = NULL;
    execve(argv[at + 1], argv + at + 1, argv + 1);
    perror(argv[at + 1]);
    return 1;
}
