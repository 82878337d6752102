/*
 * Functions whose first instruction is a call: to a function, through memory, through a register, and to the next
 * instruction, which reads its own address there.
 */
#include "shapes.h"

extern long calls_near(long), calls_memory(long), calls_register(long, long (*)(long)), reads_own_address(void);
extern char reads_own_address_next[];

TRACED long callee(long x) { return x + 1; }

long (*pointer)(long) = callee;

/* The stack is misaligned at these calls, as hand-written code may have it: callee does not mind. */
asm(SHAPE("calls_near", "call callee\naddq $10, %rax\nret\n")
    SHAPE("calls_memory", "call *pointer(%rip)\naddq $20, %rax\nret\n")
    SHAPE("calls_register", "call *%rsi\naddq $30, %rax\nret\n")
    SHAPE("reads_own_address", "call 1f\n.globl reads_own_address_next\nreads_own_address_next:\n1: .cfi_adjust_cfa_offset 8\n"
                               "popq %rax\n.cfi_adjust_cfa_offset -8\nret\n"));

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 50000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(calls_near(i) == i + 11);
        EXPECT(calls_memory(i) == i + 21);
        EXPECT(calls_register(i, callee) == i + 31);
        EXPECT(reads_own_address() == (long)reads_own_address_next);
    }
    return finish();
}
