/* 4 KB structures by value: the arguments lie above the return address and must not move. */
#include "check.h"

struct page { long words[512]; };

TRACED long sum(struct page page, long extra)
{
    long total = extra;
    for (int i = 0; i < 512; i++)
        total += page.words[i];
    return total;
}

TRACED struct page doubled(struct page page)
{
    for (int i = 0; i < 512; i++)
        page.words[i] *= 2;
    return page;
}

TRACED long recursive(struct page page, int depth)
{
    page.words[depth] += 1;
    return depth == 0 ? page.words[0] + page.words[3] + page.words[511] : recursive(page, depth - 1) + page.words[511];
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 30000);
    struct page page;
    for (int i = 0; i < 512; i++)
        page.words[i] = i;
    for (long i = 0; i < rounds; i++) {
        page.words[0] = i;
        EXPECT(sum(page, 1) == i + 1 + 511 * 512 / 2);
        struct page twice = doubled(page);
        EXPECT(twice.words[0] == 2 * i && twice.words[511] == 1022);
        EXPECT(recursive(page, 3) == i + 1 + 3 + 1 + 511 + 3 * 511);
    }
    return finish();
}
