/* Returns with prefixes, as compilers wrote them for old AMD processors, and ret imm16 within the window. */
#include "shapes.h"

extern long early_rep_ret(long), bnd_ret(long), notrack_jump(long), pops_nothing(long);

asm(SHAPE("early_rep_ret", "movl %edi, %eax\nrep ret\n.byte 0x0f, 0x1f, 0x44, 0, 0\n")
    SHAPE("bnd_ret", "movl %edi, %eax\nnop\nbnd ret\n")
    SHAPE("notrack_jump", "leaq 1f(%rip), %rdx\nnotrack jmp *%rdx\n1: movl %edi, %eax\nret\n")
    SHAPE("pops_nothing", "movl %edi, %eax\nret $0\n"));

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(early_rep_ret(i) == i);
        EXPECT(bnd_ret(i) == i);
        EXPECT(notrack_jump(i) == i);
        EXPECT(pops_nothing(i) == i);
    }
    return finish();
}
