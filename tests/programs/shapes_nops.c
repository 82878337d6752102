/* Entries padded for hot patching: five one-byte nops, one five-byte nop, and the two-byte nop of ms_hook_prologue. */
#include "check.h"

__attribute__((patchable_function_entry(5, 0))) TRACED long five_nops(long x) { return x + 1; }

__attribute__((patchable_function_entry(16, 11))) TRACED long nops_on_both_sides(long x) { return x + 2; }

__attribute__((ms_hook_prologue)) TRACED long hot_patchable(long x) { return x + 3; }

extern long long_nop(long);
asm(".pushsection .text\n.type long_nop, @function\nlong_nop:\n  .byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n  leaq 4(%rdi), %rax\n  ret\n"
    ".size long_nop, .-long_nop\n.popsection\n");

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(five_nops(i) == i + 1);
        EXPECT(nops_on_both_sides(i) == i + 2);
        EXPECT(hot_patchable(i) == i + 3);
        EXPECT(long_nop(i) == i + 4);
    }
    return finish();
}
