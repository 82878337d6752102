/* A function whose prologue another function jumps into, as glibc's memcpy family does, and a jump table that leads there. */
#include "shapes.h"

extern long whole(long), enters_late(long), by_table(long, long), table_target(long);

asm(SHAPE("whole", "xorl %eax, %eax\n.globl whole_late\nwhole_late: addq $2, %rax\naddq %rdi, %rax\nret\n")
    SHAPE("enters_late", "movl $100, %eax\njmp whole_late\n")
    SHAPE("table_target", "movl $1, %eax\ntable_target_late: addq %rdi, %rax\nret\n")
    SHAPE("by_table", "leaq 1f(%rip), %rdx\nmovl $7, %eax\nmovslq (%rdx,%rsi,4), %rcx\naddq %rdx, %rcx\njmp *%rcx\n"
                      "2: movl $50, %eax\nret\n")
    ".pushsection .rodata\n.p2align 2\n1: .long 2b-1b, table_target_late-1b\n.popsection\n");

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(whole(i) == i + 2);
        EXPECT(enters_late(i) == i + 102);
        EXPECT(table_target(i) == i + 1);
        EXPECT(by_table(i, 0) == 50);
        EXPECT(by_table(i, 1) == i + 7);
    }
    return finish();
}
