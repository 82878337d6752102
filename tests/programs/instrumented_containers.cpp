// Templates, virtual functions, lambdas, iterators and std::function, as ordinary C++ has them.
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>
#include "check.h"

struct Shape {
    virtual ~Shape() = default;
    virtual long area() const = 0;
};

struct Square : Shape {
    long side;
    explicit Square(long s) : side(s) {}
    long area() const override { return side * side; }
};

struct Pair : Shape {
    std::unique_ptr<Shape> first, second;
    Pair(std::unique_ptr<Shape> a, std::unique_ptr<Shape> b) : first(std::move(a)), second(std::move(b)) {}
    long area() const override { return first->area() + second->area(); }
};

template <typename T> static T total(const std::vector<T> &values)
{
    return std::accumulate(values.begin(), values.end(), T{}, [](const T &a, const T &b) { return a + b; });
}

static std::unique_ptr<Shape> grow(int depth)
{
    if (depth == 0)
        return std::make_unique<Square>(2);
    return std::make_unique<Pair>(grow(depth - 1), grow(depth - 1));
}

static long apply(const std::function<long(long)> &function, long x) { return function(x); }

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 1000);
    for (long i = 0; i < rounds; i++) {
        EXPECT(grow(3)->area() == 32);
        std::map<std::string, long> counts;
        for (const char *word : {"a", "b", "a", "c", "a"})
            counts[word]++;
        EXPECT(counts["a"] == 3 && counts.size() == 3);
        EXPECT(total(std::vector<long>{1, 2, i}) == i + 3);
        EXPECT(total(std::vector<std::string>{"x", "y"}) == "xy");
        EXPECT(apply([i](long x) { return x + i; }, 5) == i + 5);
    }
    return finish();
}
