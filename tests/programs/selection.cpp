// Functions with names to choose from: namespaces, members, operators, templates, overloads, and imports of a library.
#include <cstdio>
#include <cstdlib>

extern "C" int library_direct(int value);

namespace shapes {
struct Circle {
    int radius;
    __attribute__((noipa)) int area(int scale) const { return 3 * radius * radius + scale; }
    __attribute__((noipa)) bool operator<(const Circle &other) const { return radius < other.radius; }
};
__attribute__((noipa)) int grow(Circle &circle, int by)
{
    circle.radius += by;
    return circle.area(by);
}
} // namespace shapes

template <class T> __attribute__((noipa)) T doubled(T value, T offset)
{
    return value + value + offset;
}

__attribute__((noipa)) int parse_int(int text)
{
    return library_direct(text) + 7;
}

__attribute__((noipa)) int parse_float(int text)
{
    return parse_int(text) * 5 + 1;
}

extern "C" __attribute__((noipa)) int plain(int value)
{
    return parse_float(value) + 11 * value;
}

int main()
{
    shapes::Circle one{1}, two{2};
    int sum = 0;
    for (int i = 0; i < 10; i++)
        sum += shapes::grow(one, i) + (one < two) + doubled(i, 1) + static_cast<int>(doubled(1.5, 0.5)) + plain(i);
    std::printf("%d\n", sum);
    void *volatile memory = std::malloc(10);
    std::free(memory);
    return 0;
}
