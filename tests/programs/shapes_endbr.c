/* Functions that begin with endbr64: of usual size, with nothing but a return behind it, and called by pointer. */
#include "shapes.h"

extern long plain(long), only_return(long), five_bytes_behind(long);

asm(SHAPE("plain", "endbr64\npushq %rbp\n.cfi_def_cfa_offset 16\nmovq %rsp, %rbp\nleaq 1(%rdi), %rax\npopq %rbp\n"
                   ".cfi_def_cfa_offset 8\nret\n")
    SHAPE("only_return", "endbr64\nret\n.byte 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n")
    SHAPE("five_bytes_behind", "endbr64\nleaq 2(%rdi), %rax\nret\n"));

TRACED long by_pointer(long (*function)(long), long x) { return function(x); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(plain(i) == i + 1);
        only_return(i);
        EXPECT(five_bytes_behind(i) == i + 2);
        EXPECT(by_pointer(plain, i) == i + 1);
    }
    return finish();
}
