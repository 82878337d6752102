/*
 * Functions with hand-written conventions, as in crypto and interpreter cores: arguments and results in any register,
 * results in the carry, zero or direction flag, more than one result, registers kept that nobody has to keep.
 */
#include "check.h"

#define FUNCTION(NAME, BODY) ".type " NAME ", @function\n" NAME ":\n" BODY "  ret\n.size " NAME ", .-" NAME "\n"

asm(".pushsection .text\n"
    /* rbx and r11 in, r10 out; all others stay */
    FUNCTION("add_rbx_r11", "  leaq (%rbx,%r11), %r10\n  nop\n")
    /* carry in, carry out: rax = rax * 2 + carry */
    FUNCTION("rotate_carry", "  adcq %rax, %rax\n  movq %rax, %rax\n")
    /* the answer is the zero flag */
    FUNCTION("is_power", "  leaq -1(%rax), %rcx\n  testq %rax, %rcx\n")
    /* the answer is the direction flag */
    FUNCTION("set_direction", "  std\n  nopl 0(%rax,%rax)\n")
    /* three results: r13, r14, r15 */
    FUNCTION("spread", "  movq %rax, %r13\n  leaq 1(%rax), %r14\n  leaq 2(%rax), %r15\n")
    /* the callee takes its arguments off the stack: ret imm16 */
    ".type callee_pops, @function\n"
    "callee_pops:\n  movq 8(%rsp), %rax\n  subq 16(%rsp), %rax\n  ret $16\n"
    ".size callee_pops, .-callee_pops\n.popsection\n");

TRACED long use_registers(long a, long b)
{
    long sum;
    register long first asm("rbx") = a;
    register long second asm("r11") = b;
    asm volatile("call add_rbx_r11\n\tmovq %%r10, %0"
                 : "=r"(sum), "+r"(first), "+r"(second) : : "r10", "cc", "memory");
    return sum + first - second; /* both still hold what they held */
}

TRACED long use_carry(long value)
{
    unsigned char out;
    asm volatile("stc\n\tcall rotate_carry\n\tsetc %1" : "+a"(value), "=r"(out) : : "cc", "memory");
    return value + out;
}

TRACED int use_zero(long value)
{
    unsigned char yes;
    asm volatile("call is_power\n\tsetz %0" : "=r"(yes), "+a"(value) : : "rcx", "cc", "memory");
    return yes;
}

TRACED long use_direction(void)
{
    long flags;
    asm volatile("call set_direction\n\tpushfq\n\tcld\n\tpopq %0" : "=r"(flags) : : "cc", "memory");
    return flags >> 10 & 1;
}

TRACED long use_three(long value)
{
    long sum;
    asm volatile("call spread\n\tleaq (%%r13,%%r14), %0\n\taddq %%r15, %0"
                 : "=r"(sum), "+a"(value) : : "r13", "r14", "r15", "cc", "memory");
    return sum;
}

TRACED long use_popping(long a, long b)
{
    long difference;
    asm volatile("pushq %2\n\tpushq %1\n\tcall callee_pops" : "=a"(difference) : "r"(a), "r"(b) : "cc", "memory");
    return difference;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(use_registers(i, 5) == i + i);
        EXPECT(use_carry(i) == 2 * i + 1);
        EXPECT(use_carry(-1) == -1 + 1);
        EXPECT(use_zero(i) == ((i & (i - 1)) == 0));
        EXPECT(use_direction() == 1);
        EXPECT(use_three(i) == 3 * i + 3);
        EXPECT(use_popping(i, 7) == i - 7);
    }
    return finish();
}
