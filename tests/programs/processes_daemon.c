/* daemon(): the parent leaves with _exit(0), the child goes on in a new session with its descriptors changed. */
#define _DEFAULT_SOURCE
#include <unistd.h>
#include "check.h"

TRACED long work(long x) { return x + 1; }

TRACED int detaches(void) { return daemon(1, 1); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 1000), sum = 0;
    int gone[2];
    char byte;
    if (pipe(gone) != 0)
        return 2;
    /* The first parent waits for its grandchild's end, so that the output is whole when the program is over. */
    pid_t watched = fork();
    if (watched != 0) {
        close(gone[1]);
        return read(gone[0], &byte, 1) == 1 ? byte : 2;
    }
    if (detaches() != 0)
        return 2;
    for (long i = 0; i < rounds; i++)
        sum += work(i);
    EXPECT(sum == rounds * (rounds + 1) / 2);
    byte = (char)finish();
    fflush(stdout);
    return write(gone[1], &byte, 1) == 1 ? 0 : 2;
}
