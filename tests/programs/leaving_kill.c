/* A program that kills itself with SIGKILL in a traced function: what was recorded is kept. */
#include <unistd.h>
#include "check.h"

TRACED long leaf(long x) { return x + 1; }

TRACED void dies(void) { kill(getpid(), SIGKILL); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000), sum = 0;
    for (long i = 0; i < rounds; i++)
        sum += leaf(i);
    printf("%s\n", sum == rounds * (rounds + 1) / 2 ? "OK" : "wrong");
    dies();
    return 0;
}
