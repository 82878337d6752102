/* Imported functions, called straight from the program; what a library calls within itself is not the program's call. */
#include <math.h>
#include "check.h"

TRACED int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

TRACED size_t measures(const char *text) { return strlen(text) + strnlen(text, 3); }

TRACED int sorts(int seed)
{
    int values[4] = {seed, 3, 2, 1};
    qsort(values, 4, sizeof *values, compare);
    return values[0];
}

TRACED double computes(double x) { return pow(x, 1.5) + hypot(3, 4); }

TRACED char *duplicates(const char *text)
{
    char *copy = strdup(text); /* allocates by itself: that malloc is libc's affair */
    free(copy);
    copy = malloc(16);
    return memcpy(copy, text, 4);
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 20000);
    char text[4] = "abc";
    for (long i = 0; i < rounds; i++) {
        text[0] = (char)('a' + i % 26);
        EXPECT(measures(text) == 6);
        EXPECT(sorts(9) == 1);
        EXPECT(computes(4) == 13);
        char *copy = duplicates(text);
        EXPECT(memcmp(copy, text, 4) == 0);
        free(copy);
    }
    return finish();
}
