// An exception thrown and caught within a destructor that itself runs because of an exception; and noexcept(false) ones.
#include <stdexcept>
#include "check.h"

static long inner_caught;

extern "C" {
TRACED void callee_throws(int x) { throw x; }

TRACED void cleans_up(int x)
{
    try {
        callee_throws(x + 1);
    } catch (int) {
        inner_caught++;
    }
}
}

struct Cleans {
    int value;
    ~Cleans() { cleans_up(value); }
};

struct Throws {
    ~Throws() noexcept(false) { callee_throws(5); }
};

extern "C" {
TRACED void unwinds(int x)
{
    Cleans first{x}, second{x + 1};
    callee_throws(x);
}

TRACED int catches(int x)
{
    try {
        unwinds(x);
    } catch (int value) {
        return value;
    }
    return -1;
}

TRACED void leaves_by_destructor() { Throws last; }

TRACED int catches_destructor()
{
    try {
        leaves_by_destructor();
    } catch (int value) {
        return value;
    }
    return -1;
}
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 3000);
    for (int i = 0; i < rounds; i++) {
        EXPECT(catches(i) == i);
        EXPECT(catches_destructor() == 5);
    }
    EXPECT(inner_caught == 2 * rounds);
    return finish();
}
