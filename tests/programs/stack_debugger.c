/* Waits, four calls deep, for a debugger that sets `go`; each function's result tells whether `finish` has ended it. */
#include <stdio.h>
#include <unistd.h>

#define TRACED __attribute__((noipa, used))

volatile int go;

TRACED int waits(int n)
{
    while (!go)
        usleep(1000);
    return n + 1;
}

TRACED int inner(int n) { return waits(n) * 2; }
TRACED int middle(int n) { return inner(n) + 3; }
TRACED int outer(int n) { return middle(n) * 5; }

int main(void)
{
    int result = outer(7);
    printf("%d\n", result);
    return result == (8 * 2 + 3) * 5 ? 0 : 1;
}
