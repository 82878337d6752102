// C++ exceptions through one, several and recursive traced frames; destructors run, rethrow, nested, rethrow_exception.
#include <exception>
#include <stdexcept>
#include <string>
#include "check.h"

static long destroyed;

struct Guard {
    ~Guard() { destroyed++; }
};

extern "C" {
TRACED void throws(int x) { throw std::runtime_error("boom " + std::to_string(x)); }

TRACED void middle(int x)
{
    Guard guard;
    throws(x);
}

TRACED void recursive(int depth)
{
    Guard guard;
    if (depth == 0)
        throw depth;
    recursive(depth - 1);
}

TRACED int catches_near(int x)
{
    try {
        throws(x);
    } catch (const std::exception &) {
        return 1;
    }
    return 0;
}

TRACED int catches_far(int x)
{
    try {
        middle(x);
    } catch (const std::runtime_error &error) {
        return std::string(error.what()) == "boom " + std::to_string(x);
    }
    return 0;
}

TRACED int catches_recursive(int depth)
{
    try {
        recursive(depth);
    } catch (int value) {
        return value == 0;
    }
    return 0;
}

TRACED void rethrows(int x)
{
    try {
        middle(x);
    } catch (...) {
        throw;
    }
}

TRACED int catches_rethrown(int x)
{
    try {
        rethrows(x);
    } catch (const std::runtime_error &) {
        return 1;
    }
    return 0;
}

TRACED void wraps(int x)
{
    try {
        throws(x);
    } catch (...) {
        std::throw_with_nested(std::logic_error("outer"));
    }
}

TRACED int unwraps(int x)
{
    try {
        wraps(x);
    } catch (const std::logic_error &outer) {
        try {
            std::rethrow_if_nested(outer);
        } catch (const std::runtime_error &) {
            return 1;
        }
    }
    return 0;
}

TRACED std::exception_ptr keeps(int x)
{
    try {
        throws(x);
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

TRACED int rethrows_kept(int x)
{
    std::exception_ptr kept = keeps(x);
    try {
        std::rethrow_exception(kept);
    } catch (const std::runtime_error &) {
        return 1;
    }
    return 0;
}

TRACED int after(int x) { return x + 1; }
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 2000);
    for (int i = 0; i < rounds; i++) {
        EXPECT(catches_near(i) == 1);
        EXPECT(catches_far(i) == 1);
        EXPECT(catches_recursive(9) == 1);
        EXPECT(catches_rethrown(i) == 1);
        EXPECT(unwraps(i) == 1);
        EXPECT(rethrows_kept(i) == 1);
        EXPECT(after(i) == i + 1);
    }
    EXPECT(destroyed == rounds * 12);
    return finish();
}
