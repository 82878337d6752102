// Exceptions that cross threads: thrown in a std::async task, raised again by future.get().
// flags: -pthread
#include <future>
#include <stdexcept>
#include <vector>
#include "check.h"

extern "C" {
TRACED int task(int x)
{
    if (x % 2 == 1)
        throw std::runtime_error("odd");
    return x;
}

TRACED int gets(std::future<int> &future)
{
    try {
        return future.get();
    } catch (const std::runtime_error &) {
        return -1;
    }
}
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200);
    for (int i = 0; i < rounds; i++) {
        std::future<int> future = std::async(std::launch::async, [i] { return task(i); });
        EXPECT(gets(future) == (i % 2 == 1 ? -1 : i));
    }
    return finish();
}
