/*
 * Loops at the very entry. A jump back to the first byte is an ordinary jump and no call; jumps back to bytes two and
 * four go into the window that a hook would displace.
 */
#include "shapes.h"

extern long head_is_entry(long), head_in_window(long), head_at_four(long), nested_heads(long);

/* rdi counts down, rax counts up; the caller zeroes rax. */
asm(SHAPE("head_is_entry", "incq %rax\ndecq %rdi\njnz head_is_entry\nret\n")
    SHAPE("head_in_window", "xorl %eax, %eax\n1: incq %rax\ndecq %rdi\njnz 1b\nret\n")
    SHAPE("head_at_four", "leaq (%rdi), %rdx\nnop\n1: addq %rdx, %rax\ndecq %rdi\njnz 1b\nret\n")
    SHAPE("nested_heads", "1: movl $2, %edx\n2: incq %rax\ndecl %edx\njnz 2b\ndecq %rdi\njnz 1b\nret\n"));

INLINED long from_zero(long (*function)(long), long n)
{
    long result = 0;
    asm volatile("call *%2" : "+a"(result), "+D"(n) : "r"(function) : "rdx", "cc", "memory");
    return result;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 50000);
    for (long i = 0; i < rounds; i++) {
        long n = i % 7 + 1;
        EXPECT(from_zero(head_is_entry, n) == n);
        EXPECT(from_zero(head_in_window, n) == n);
        EXPECT(from_zero(head_at_four, n) == n * n);
        EXPECT(from_zero(nested_heads, n) == 2 * n);
    }
    return finish();
}
