/*
 * Functions of one to four bytes: with padding behind them that a jump may use, and packed one behind the other, where
 * it would destroy the neighbour.
 */
#include "shapes.h"

extern void one_padded(void), one_packed(void);
extern long two_padded(long), three_padded(long), four_padded(long), two_packed(long), three_packed(long), four_packed(long);
extern long neighbour(long);

asm(SHAPE("one_padded", "ret\n")
    SHAPE("two_padded", "rep ret\n")
    SHAPE("three_padded", "xorl %eax, %eax\nret\n")
    SHAPE("four_padded", "movq %rdi, %rax\nret\n")
    SHAPE("one_packed", "ret\n")
    SHAPE_PACKED("two_packed", "nop\nret\n")
    SHAPE_PACKED("three_packed", "xorl %eax, %eax\nret\n")
    SHAPE_PACKED("four_packed", "movq %rdi, %rax\nret\n")
    SHAPE_PACKED("neighbour", "leaq 1(%rdi), %rax\nret\n"));

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        one_padded();
        two_padded(i);
        EXPECT(three_padded(i) == 0);
        EXPECT(four_padded(i) == i);
        one_packed();
        two_packed(i);
        EXPECT(three_packed(i) == 0);
        EXPECT(four_packed(i) == i);
        EXPECT(neighbour(i) == i + 1);
    }
    return finish();
}
