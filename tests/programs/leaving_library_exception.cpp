// Exceptions from libstdc++ into the program, and from the program through library code (std::sort, qsort) and back.
#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>
#include "check.h"

extern "C" {
TRACED int from_library(const std::string &text)
{
    try {
        return std::stoi(text);
    } catch (const std::invalid_argument &) {
        return -1;
    } catch (const std::out_of_range &) {
        return -2;
    }
}

TRACED int compares(const void *a, const void *b)
{
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    if (x == 13 || y == 13)
        throw 13;
    return x - y;
}

TRACED int through_library(int special)
{
    int values[] = {5, 3, special, 1};
    try {
        qsort(values, 4, sizeof *values, compares);
    } catch (int value) {
        return value;
    }
    return values[0];
}

TRACED char at(const std::string &text, size_t index)
{
    try {
        return text.at(index);
    } catch (const std::out_of_range &) {
        return '?';
    }
}
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 2000);
    for (int i = 0; i < rounds; i++) {
        EXPECT(from_library(std::to_string(i)) == i);
        EXPECT(from_library("none") == -1);
        EXPECT(from_library("99999999999999") == -2);
        EXPECT(through_library(2) == 1);
        EXPECT(through_library(13) == 13);
        EXPECT(at("abc", 1) == 'b');
        EXPECT(at("abc", 7) == '?');
    }
    return finish();
}
