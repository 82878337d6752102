/* exit() from depth: atexit handlers and destructors run while the calls that led there are still in flight. */
#include "check.h"

static int handled;

TRACED void inner_handler(void) { handled++; }

TRACED void handler(void) { inner_handler(); }

__attribute__((destructor)) TRACED void destructor(void)
{
    printf("handled %d\n", handled);
    fflush(stdout);
}

TRACED void leaves(int depth)
{
    if (depth == 0)
        exit(3);
    leaves(depth - 1);
}

int main(int argc, char **argv)
{
    rounds_of(argc, argv, 1);
    for (int i = 0; i < 5; i++)
        atexit(handler);
    leaves(4);
}
