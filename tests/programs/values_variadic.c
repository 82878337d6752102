/* Variadic functions: al holds the number of vector registers in use, and the prologue branches on it. */
#include <stdarg.h>
#include "check.h"

TRACED double sum_doubles(int count, ...)
{
    va_list list;
    double sum = 0;
    va_start(list, count);
    for (int i = 0; i < count; i++)
        sum += va_arg(list, double);
    va_end(list);
    return sum;
}

TRACED long sum_mixed(const char *kinds, ...)
{
    va_list list;
    long sum = 0;
    va_start(list, kinds);
    for (; *kinds; kinds++)
        sum += *kinds == 'd' ? (long)va_arg(list, double) : *kinds == 'q' ? (long)va_arg(list, long double) : va_arg(list, long);
    va_end(list);
    return sum;
}

TRACED int format(char *into, size_t size, const char *pattern, ...)
{
    va_list list;
    va_start(list, pattern);
    int length = vsnprintf(into, size, pattern, list);
    va_end(list);
    return length;
}

/* al itself, as a hand-written variadic function sees it. */
extern long number_of_vectors(int first, ...);
asm(".pushsection .text\n"
    ".globl number_of_vectors\n"
    ".type number_of_vectors, @function\n"
    "number_of_vectors:\n"
    "  .cfi_startproc\n"
    "  movzbl %al, %eax\n"
    "  nopl 0(%rax)\n"
    "  ret\n"
    "  .cfi_endproc\n"
    ".size number_of_vectors, .-number_of_vectors\n.popsection\n");

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    char text[64];
    for (long i = 0; i < rounds; i++) {
        double d = (double)(i % 100);
        EXPECT(sum_doubles(0) == 0);
        EXPECT(sum_doubles(10, d, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0) == d + 45);
        EXPECT(sum_mixed("dldlqldlldq", 1.0, 2L, d, 4L, 5.0L, 6L, 7.0, 8L, 9L, 10.0, 11.0L) == 63 + (long)d);
        EXPECT(format(text, sizeof text, "%d %.1f %s", (int)d, d, "x") > 0);
        EXPECT(number_of_vectors(1, 1.0, 2.0, 3.0) == 3);
        EXPECT(number_of_vectors(1, 2, 3) == 0);
    }
    EXPECT(strcmp(text, "99 99.0 x") == 0 || rounds % 100 != 0);
    return finish();
}
