/* A library that live_forked.c loads: its function adds NUMBER, which is a part of its name. */
#include "check.h"

#define PASTE(name, number) name##number
#define NAMED(name, number) PASTE(name, number)

TRACED long NAMED(inner_, NUMBER)(long x)
{
    return x + NUMBER;
}

TRACED long NAMED(count_, NUMBER)(long x)
{
    return NAMED(inner_, NUMBER)(x);
}
