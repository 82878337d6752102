/* abort() from depth: nothing that was recorded is lost, what was in flight is open, the status is the signal's. */
#include <sys/resource.h>
#include "check.h"

TRACED int leaf(int x) { return x + 1; }

TRACED void leaves(int depth)
{
    leaf(depth);
    if (depth == 0)
        abort();
    leaves(depth - 1);
}

int main(int argc, char **argv)
{
    struct rlimit none = {0, 0};
    rounds_of(argc, argv, 1);
    setrlimit(RLIMIT_CORE, &none);
    puts("aborting");
    leaves(4);
}
