/*
 * Functions whose first instruction is a jump: short, near, through memory, conditional short and near, jrcxz and loop,
 * and a jump out of the function, which is a tail call.
 */
#include "shapes.h"

extern long jumps_short(long), jumps_near(long), jumps_memory(long), jumps_away(long);
extern long jumps_if(long), jumps_if_near(long), jumps_if_zero(long, long, long, long), loops(long, long, long, long);

TRACED long other(long x) { return x + 5; }

asm(SHAPE("jumps_short", "jmp 1f\n.byte 0x0f, 0x0b, 0x0f, 0x0b\n1: leaq 1(%rdi), %rax\nret\n")
    SHAPE("jumps_near", ".byte 0xe9\n.long 1f-.-4\n.fill 200, 1, 0xcc\n1: leaq 2(%rdi), %rax\nret\n")
    SHAPE("jumps_memory", "jmp *jumps_memory_target(%rip)\n.byte 0x0f, 0x0b\n"
                          "jumps_memory_continues: leaq 3(%rdi), %rax\nret\n")
    ".pushsection .data\n.p2align 3\njumps_memory_target: .quad jumps_memory_continues\n.popsection\n"
    SHAPE("jumps_away", "jmp other\n")
    /* The flags at the entry belong to nobody, so set them by the caller's test below. */
    SHAPE("jumps_if", "jz 1f\nmovl $1, %eax\nret\n1: movl $2, %eax\nret\n")
    SHAPE("jumps_if_near", ".byte 0x0f, 0x84\n.long 1f-.-4\nmovl $1, %eax\nret\n.fill 200, 1, 0xcc\n1: movl $2, %eax\nret\n")
    SHAPE("jumps_if_zero", "jrcxz 1f\nmovl $1, %eax\nret\n1: movl $2, %eax\nret\n")
    SHAPE("loops", "loop 1f\nmovl $1, %eax\nret\n1: movq %rcx, %rax\nret\n"));

INLINED long with_zero_flag(long (*function)(long), long flag_source)
{
    long result;
    asm volatile("testq %2, %2\n\tcall *%1" : "=a"(result) : "r"(function), "r"(flag_source) : "cc", "memory");
    return result;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 50000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(jumps_short(i) == i + 1);
        EXPECT(jumps_near(i) == i + 2);
        EXPECT(jumps_memory(i) == i + 3);
        EXPECT(jumps_away(i) == i + 5);
        EXPECT(with_zero_flag(jumps_if, 0) == 2);
        EXPECT(with_zero_flag(jumps_if, 1) == 1);
        EXPECT(with_zero_flag(jumps_if_near, 0) == 2);
        EXPECT(with_zero_flag(jumps_if_near, 1) == 1);
        EXPECT(jumps_if_zero(0, 0, 0, 0) == 2);
        EXPECT(jumps_if_zero(0, 0, 0, i + 1) == 1);
        EXPECT(loops(0, 0, 0, 1) == 1);
        EXPECT(loops(0, 0, 0, 9) == 8);
    }
    return finish();
}
