/* Data between and within functions: jump tables and constants in .text, some of whose bytes look like jumps into a prologue. */
#include "shapes.h"

extern long uses_constant(long), uses_table(long, long), before_data(long), after_data(long);

asm(SHAPE("before_data", "leaq 1(%rdi), %rax\nret\n")
    /* Bytes that a linear decoder takes for short jumps backwards and for half an instruction. */
    ".pushsection .text\n.fill 8, 2, 0xf0eb\n.byte 0xe9\n.long before_data+2-.-4\n.byte 0xe8\n.popsection\n"
    SHAPE("after_data", "leaq 2(%rdi), %rax\nret\n.byte 0xeb, 0xf9, 0x75, 0xf8\n")
    SHAPE("uses_constant", "movq 1f(%rip), %rax\naddq %rdi, %rax\nret\n.p2align 3\n1: .quad 0x1122334455667788\n")
    SHAPE("uses_table", "leaq 1f(%rip), %rdx\nmovslq (%rdx,%rsi,4), %rcx\naddq %rdx, %rcx\njmp *%rcx\n"
                        ".p2align 2\n1: .long 2f-1b, 3f-1b\n"
                        "2: leaq 10(%rdi), %rax\nret\n3: leaq 20(%rdi), %rax\nret\n"));

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(before_data(i) == i + 1);
        EXPECT(after_data(i) == i + 2);
        EXPECT(uses_constant(i) == i + 0x1122334455667788);
        EXPECT(uses_table(i, 0) == i + 10);
        EXPECT(uses_table(i, 1) == i + 20);
    }
    return finish();
}
