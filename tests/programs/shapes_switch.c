/* Big switches: jump tables in .rodata with relative (PIC) or absolute entries, computed gotos. */
#include "check.h"

TRACED long one(long x) { return x + 1; }

TRACED long two(long x) { return x + 2; }

TRACED long choose(long kind, long x)
{
    switch (kind) {
    case 0: return one(x);
    case 1: return two(x) * 3;
    case 2: return x - 1;
    case 3: return one(two(x));
    case 4: return x << 2;
    case 5: return two(x);
    case 6: return ~x;
    default: return 0;
    }
}

TRACED long interpret(const unsigned char *code, long x)
{
    static const void *const labels[] = {&&add, &&twice, &&call_one, &&end};
    goto *labels[*code];
add:
    x += 10;
    goto *labels[*++code];
twice:
    x *= 2;
    goto *labels[*++code];
call_one:
    x = one(x);
    goto *labels[*++code];
end:
    return x;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    for (long i = 0; i < rounds; i++) {
        const long right[] = {i + 1, (i + 2) * 3, i - 1, i + 3, i << 2, i + 2, ~i, 0};
        EXPECT(choose(i & 7, i) == right[i & 7]);
        EXPECT(interpret((const unsigned char *)"\0\1\2\2\1\3", i) == ((i + 10) * 2 + 2) * 2);
    }
    return finish();
}
