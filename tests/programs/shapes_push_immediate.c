/* Entries that push constants: push imm8, push imm32, push of a memory operand, pushfq, enter. */
#include "shapes.h"

long stored = 77;
extern long push_byte(void), push_word(void), push_memory(void), push_flags(void), enters(long);

asm(SHAPE("push_byte", "pushq $-5\n.cfi_def_cfa_offset 16\npopq %rax\n.cfi_def_cfa_offset 8\nnop\nnop\nret\n")
    SHAPE("push_word", "pushq $0x12345678\n.cfi_def_cfa_offset 16\npopq %rax\n.cfi_def_cfa_offset 8\nret\n")
    SHAPE("push_memory", "pushq stored(%rip)\n.cfi_def_cfa_offset 16\npopq %rax\n.cfi_def_cfa_offset 8\nret\n")
    SHAPE("push_flags", "pushfq\n.cfi_def_cfa_offset 16\npopq %rax\n.cfi_def_cfa_offset 8\nandq $1, %rax\nret\n")
    SHAPE("enters", "enter $16, $0\n.cfi_def_cfa rbp, 16\n.cfi_offset rbp, -16\nmovq %rdi, -8(%rbp)\n"
                    "movq -8(%rbp), %rax\nleave\n.cfi_def_cfa rsp, 8\nret\n"));

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(push_byte() == -5);
        EXPECT(push_word() == 0x12345678);
        EXPECT(push_memory() == 77);
        EXPECT((push_flags() & ~1L) == 0);
        EXPECT(enters(i) == i);
    }
    return finish();
}
