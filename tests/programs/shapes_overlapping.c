/*
 * Two entries into one body: a function symbol in the middle of another function, and a local label with a function's type
 * at the very same address as a global one.
 */
#include "shapes.h"

extern long outer_entry(long), inner_entry(long), second_of_same(long), first_of_same(long);

asm(".pushsection .text\n.p2align 4\n.globl outer_entry\n.type outer_entry, @function\nouter_entry:\n.cfi_startproc\n"
    "addq $100, %rdi\nnop\nnop\n"
    ".globl inner_entry\n.type inner_entry, @function\ninner_entry:\n"
    "leaq 1(%rdi), %rax\nret\n.cfi_endproc\n.size outer_entry, .-outer_entry\n.size inner_entry, .-inner_entry\n"
    ".p2align 4\n.type first_of_same, @function\n.type second_of_same, @function\n"
    "first_of_same:\nsecond_of_same:\n.cfi_startproc\nleaq 3(%rdi), %rax\nret\n.cfi_endproc\n"
    ".size first_of_same, .-first_of_same\n.size second_of_same, 5\n.popsection\n");

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(outer_entry(i) == i + 101);
        EXPECT(inner_entry(i) == i + 1);
        EXPECT(first_of_same(i) == i + 3);
        EXPECT(second_of_same(i) == i + 3);
    }
    return finish();
}
