/* A chain of a thousand tail calls, as -O2 makes them of calls in last place: all share one return address. */
#include "check.h"

#define LINK(NAME, NEXT) TRACED long NAME(long x) { return NEXT(x + 1); }
#define TEN(P, NEXT)                                                                                                   \
    LINK(P##0, NEXT) LINK(P##1, P##0) LINK(P##2, P##1) LINK(P##3, P##2) LINK(P##4, P##3)                               \
    LINK(P##5, P##4) LINK(P##6, P##5) LINK(P##7, P##6) LINK(P##8, P##7) LINK(P##9, P##8)
#define HUNDRED(P, NEXT)                                                                                               \
    TEN(P##0, NEXT) TEN(P##1, P##09) TEN(P##2, P##19) TEN(P##3, P##29) TEN(P##4, P##39)                                \
    TEN(P##5, P##49) TEN(P##6, P##59) TEN(P##7, P##69) TEN(P##8, P##79) TEN(P##9, P##89)

TRACED long last(long x) { return x; }

HUNDRED(link0, last)
HUNDRED(link1, link099)
HUNDRED(link2, link199)
HUNDRED(link3, link299)
HUNDRED(link4, link399)
HUNDRED(link5, link499)
HUNDRED(link6, link599)
HUNDRED(link7, link699)
HUNDRED(link8, link799)
HUNDRED(link9, link899)

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 500);
    for (long i = 0; i < rounds; i++)
        EXPECT(link999(i) == i + 1000);
    return finish();
}
