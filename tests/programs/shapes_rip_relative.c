/* Entries with rip-relative operands, the constant behind the displacement included: lea, loads, stores, compares, vectors. */
#include "shapes.h"

long number = 41;
double real = 2.5;
long vector[2] __attribute__((aligned(16))) = {3, 4};
const char text[] = "abc";

extern const char *loads_address(void);
extern long loads(void), stores_byte(void), stores_word(long), compares(void), tests(void), adds(long), exchanges(long);
extern double loads_double(void);
extern long loads_vector(void), two_operands(void), multiplies(void);

asm(SHAPE("loads_address", "leaq text(%rip), %rax\nret\n")
    SHAPE("loads", "movq number(%rip), %rax\nret\n")
    SHAPE("stores_byte", "movb $7, number(%rip)\nmovq number(%rip), %rax\nret\n")
    SHAPE("stores_word", "movq $0x1234, number(%rip)\naddq %rdi, number(%rip)\nmovq number(%rip), %rax\nret\n")
    SHAPE("compares", "cmpq $41, number(%rip)\nsete %al\nmovzbl %al, %eax\nret\n")
    SHAPE("tests", "testl $0x100, number(%rip)\nsetne %al\nmovzbl %al, %eax\nret\n")
    SHAPE("adds", "addq number(%rip), %rdi\nmovq %rdi, %rax\nret\n")
    SHAPE("exchanges", "lock xaddq %rdi, number(%rip)\nmovq %rdi, %rax\nret\n")
    SHAPE("loads_double", "movsd real(%rip), %xmm0\naddsd real(%rip), %xmm0\nret\n")
    SHAPE("loads_vector", "movdqa vector(%rip), %xmm0\npsrldq $8, %xmm0\nmovq %xmm0, %rax\nret\n")
    SHAPE("two_operands", "movl number(%rip), %eax\nmovl vector(%rip), %edx\naddq %rdx, %rax\nret\n")
    SHAPE("multiplies", "imulq $1000, number(%rip), %rax\nret\n"));

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 50000);
    for (long i = 0; i < rounds; i++) {
        number = 41;
        EXPECT(loads_address() == text);
        EXPECT(loads() == 41);
        EXPECT(compares() == 1);
        EXPECT(tests() == 0);
        EXPECT(adds(i) == i + 41);
        EXPECT(exchanges(1) == 41);
        EXPECT(compares() == 0);
        EXPECT(loads_double() == 5.0);
        EXPECT(loads_vector() == 4);
        EXPECT(two_operands() == 45);
        EXPECT(multiplies() == 42000);
        EXPECT(stores_word(i) == 0x1234 + i);
        number = 0;
        EXPECT(stores_byte() == 7);
    }
    return finish();
}
