/* For the call/return checker's own test: a ret to an address that was pushed, as a rewriter of return addresses has it. */
#include "shapes.h"

extern long goes_elsewhere(long), drops_return(long);

asm(SHAPE("goes_elsewhere", "leaq 1f(%rip), %rax\npushq %rax\nret\n1: leaq 1(%rdi), %rax\nret\n")
    /* Takes its return address away and jumps to it: no ret is wrong here, but the next one above is. */
    SHAPE("drops_return", "popq %rdx\nleaq 1(%rdi), %rax\njmp *%rdx\n"));

TRACED long around(long x) { return drops_return(x) + 1; }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 3);
    for (long i = 0; i < rounds; i++) {
        EXPECT(goes_elsewhere(i) == i + 1);
        EXPECT(around(i) == i + 2);
    }
    return finish();
}
