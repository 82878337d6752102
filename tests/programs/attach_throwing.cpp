// Exceptions that pass through calls all the time, thrown from depth and caught, with destructors in between; each is
// counted. To be attached to and left in any moment. A line at stdin ends it.
#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#define TRACED __attribute__((noinline, noclone, used))

static std::atomic<bool> stop;
static std::atomic<long> wrong, rounds;
static thread_local int alive;

struct Guard {
    Guard() { alive++; }
    ~Guard() { alive--; }
};

TRACED int deep(int depth)
{
    Guard guard;
    if (depth == 0)
        throw std::runtime_error("bottom");
    return deep(depth - 1) + 1;
}

TRACED int between(int depth)
{
    Guard guard;
    try {
        return deep(depth);
    } catch (const std::logic_error &) {
        return -1;
    }
}

TRACED int catching(int depth)
{
    try {
        return between(depth);
    } catch (const std::runtime_error &error) {
        return error.what()[0] == 'b' ? 42 : 0;
    }
}

static void work()
{
    for (int depth = 0; !stop; depth = (depth + 1) % 20) {
        if (catching(depth) != 42 || alive != 0)
            wrong++;
        rounds++;
    }
}

int main()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++)
        threads.emplace_back(work);
    puts("ready");
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin))
        wrong += 1000000;
    stop = true;
    for (auto &thread : threads)
        thread.join();
    printf("wrong %ld worked %d\n", wrong.load(), rounds > 0);
    return wrong != 0;
}
