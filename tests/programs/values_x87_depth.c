/*
 * The x87 stack across calls: a caller with six values on it calls a function that touches none, and an assembly
 * function that takes two values from it and leaves one (a convention of its own). One register pushed too many by somebody
 * in between would overflow the stack and turn a value into a NaN.
 */
#include "check.h"

extern void keep_six(const double *values, double *results);
extern void untouched(void);
extern void add_tops(void);
extern void fill_eight(double *result);
extern void seven_live(void);

asm(".pushsection .text\n"
    ".type untouched, @function\n"
    "untouched:\n  pushq %rax\n  pushq %rcx\n  popq %rcx\n  popq %rax\n  ret\n"
    ".size untouched, .-untouched\n"
    ".type add_tops, @function\n"
    "add_tops:\n  faddp\n  fnop\n  nop\n  ret\n"
    ".size add_tops, .-add_tops\n"
    ".type keep_six, @function\n"
    "keep_six:\n"
    "  fldl 0(%rdi)\n  fldl 8(%rdi)\n  fldl 16(%rdi)\n  fldl 24(%rdi)\n  fldl 32(%rdi)\n  fldl 40(%rdi)\n"
    "  call untouched\n"
    "  call add_tops\n"
    "  fstpl 32(%rsi)\n  fstpl 24(%rsi)\n  fstpl 16(%rsi)\n  fstpl 8(%rsi)\n  fstpl 0(%rsi)\n"
    "  ret\n"
    ".size keep_six, .-keep_six\n"
    /* All eight registers in use while a function is entered and left. */
    ".type fill_eight, @function\n"
    "fill_eight:\n"
    "  fld1\n  fldpi\n  fldl2e\n  fldl2t\n  fldlg2\n  fldln2\n  fldz\n"
    "  call seven_live\n"
    "  fstpl 56(%rdi)\n  fstpl 48(%rdi)\n  fstpl 40(%rdi)\n  fstpl 32(%rdi)\n  fstpl 24(%rdi)\n  fstpl 16(%rdi)\n"
    "  fstpl 8(%rdi)\n  fstpl 0(%rdi)\n"
    "  ret\n"
    ".size fill_eight, .-fill_eight\n"
    ".type seven_live, @function\n"
    "seven_live:\n  fld1\n  fchs\n  nop\n  ret\n"
    ".size seven_live, .-seven_live\n.popsection\n");

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 300000);
    for (long i = 0; i < rounds; i++) {
        double values[6] = {(double)i, 1, 2, 3, 4, 5}, results[5], eight[8];
        keep_six(values, results);
        EXPECT(results[0] == (double)i && results[1] == 1 && results[2] == 2 && results[3] == 3 && results[4] == 9);
        fill_eight(eight);
        EXPECT(eight[0] == 1 && eight[1] == 3.14159265358979323846 && eight[6] == 0 && eight[7] == -1);
    }
    return finish();
}
