// Exceptions thrown and caught within a static initialiser, before main; a function-local static whose first tries throw.
#include <stdexcept>
#include "check.h"

extern "C" {
TRACED int initial(int x)
{
    if (x < 0)
        throw std::out_of_range("negative");
    return x;
}

TRACED int safe_initial(int x)
{
    try {
        return initial(x);
    } catch (const std::out_of_range &) {
        return 99;
    }
}
}

static int early = safe_initial(-1);
static int attempts;

extern "C" {
TRACED int third_try()
{
    attempts++;
    return initial(attempts < 3 ? -1 : 7);
}

TRACED int lazily()
{
    static int value = third_try();
    return value;
}
}

int main(int argc, char **argv)
{
    rounds_of(argc, argv, 1);
    EXPECT(early == 99);
    int thrown = 0, value = 0;
    for (int i = 0; i < 4; i++) {
        try {
            value = lazily();
        } catch (const std::out_of_range &) {
            thrown++;
        }
    }
    EXPECT(thrown == 2 && value == 7 && attempts == 3);
    return finish();
}
