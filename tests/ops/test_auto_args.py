"""Arguments and results as debug information describes them, wherever the ABI puts them."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.build import compile_files
from tests.support.counts import read_counts
from tests.support.manners import recorder, run

TYPES = """
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
enum color { RED = 1, GREEN = 200, BLUE = -4 };
enum big { LARGE = 0x100000000 };
typedef unsigned long size_type;
struct one { int a; };
struct two { long a, b; };
struct mixed { double a; long b; };
struct floats { float a, b, c; };
struct large { long a[5]; };
struct odd { char a[3]; };
union either { long a; double b; };
static int wrong;
"""

# C type, how a value is written, how it is shown (None: not at all). Different numbers are made of `n`.
SCALARS = [
    ("char", "(char)('a' + {n} % 26)", "'{letter}'"),
    ("short", "(short)-{n}", "-{n}"),
    ("int", "-{n}", "-{n}"),
    ("long", "-{n}l << 33", "-{shifted}"),
    ("unsigned short", "{n}", "{n}"),
    ("unsigned", "{n}u", "{n}"),
    ("size_type", "{n}ul << 33", "{shifted}"),
    ("uint64_t", "{n}", "{n}"),
    ("float", "{n}.5f", "{n}.5"),
    ("double", "-{n}.25", "-{n}.25"),
    ("bool", "{n} % 2", "{boolean}"),
    ("_Bool", "{n} % 2", "{boolean}"),
    ("void *", "(void *){n}", "{hexadecimal}"),
    ("int **", "(int **){n}", "{hexadecimal}"),
    ("const char *", '"text {n}"', '"text {n}"'),
    ("char *", '(char *)"text {n}"', '"text {n}"'),
    ("enum color", "GREEN", "200"),
    ("enum color", "BLUE", "-4"),
    ("enum big", "LARGE", "4294967296"),
]
OTHERS = [
    ("struct one", "(struct one){{{n}}}", None),
    ("struct two", "(struct two){{{n}, 2}}", None),
    ("struct mixed", "(struct mixed){{{n}, 2}}", None),
    ("struct floats", "(struct floats){{{n}, 2, 3}}", None),
    ("struct large", "(struct large){{{{{n}, 2}}}}", None),
    ("struct odd", "(struct odd){{{{1, 2, 3}}}}", None),
    ("union either", "(union either){{.a = {n}}}", None),
    ("long double", "{n}.0l", None),
    ("__int128", "{n}", None),
    ("float _Complex", "{n}.0f", None),
    ("double _Complex", "{n}.0", None),
    ("long double _Complex", "{n}.0l", None),
]


pytestmark = pytest.mark.usefixtures("needs_libdw")


def shown(pattern: str, n: int) -> str:
    letter, boolean = chr(ord("a") + n % 26), "true" if n % 2 else "false"
    return pattern.format(n=n, letter=letter, boolean=boolean, shifted=n << 33, hexadecimal=f"{n:#x}")


@dataclass
class Case:
    """One function with the values it is called with, and the texts that are expected."""

    name: str
    declaration: str
    call: str
    arguments: str | None
    result: str | None


def make(name: str, chance: random.Random) -> Case:
    kinds = [chance.choice(chance.choice([SCALARS, SCALARS, OTHERS])) for _ in range(chance.choice([0, 1, 4, 9, 16]))]
    numbers = [chance.randint(2, 999) for _ in kinds]
    parameters = [f"{kind} a{i}" for i, (kind, _, _) in enumerate(kinds)]
    expected = [f"a{i}={shown(t, n)}" for i, ((_, _, t), n) in enumerate(zip(kinds, numbers, strict=True)) if t]
    result, value, text = chance.choice([("void", "", None), *SCALARS, *OTHERS])
    number = chance.randint(2, 999)
    body = f"return {value.format(n=number)};" if value else ""
    return Case(
        name,
        f"__attribute__((noipa)) {result} {name}({', '.join(parameters) or 'void'})\n{{\n    {body}\n}}",
        f"    {name}({', '.join(v.format(n=n) for (_, v, _), n in zip(kinds, numbers, strict=True))});",
        ", ".join(expected) or None,
        shown(text, number) if text else None,
    )


@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_argument_is_found_behind_arguments_of_all_kinds(seed: int, optimisation: str, tmp_path: Path) -> None:
    chance = random.Random(seed)
    cases = [make(f"f{number}", chance) for number in range(150)]
    main = ["int main(void)\n{", *(case.call for case in cases), '    puts("OK");', "    return wrong;\n}\n"]
    (tmp_path / "auto.c").write_text("\n".join([TYPES, *(case.declaration for case in cases), *main]))
    quiet = ("-Wno-unused-parameter", "-Wno-unused-function")
    compile_files("gcc", [tmp_path / "auto.c"], tmp_path / "auto", (optimisation, "-g", *quiet))
    ended = run([*recorder("--libcalls", "none", "--auto-args", trace=tmp_path / "t"), str(tmp_path / "auto")])
    assert (ended.output, ended.errors, ended.status) == ("OK\n", "", 0)
    counts = read_counts(tmp_path / "t")
    for case in cases:
        if case.name in counts.calls:
            got = counts.values.get(case.name, [(None, None)])[0]
            assert got == (case.arguments, case.result), case.declaration
    assert len([case for case in cases if case.name in counts.calls]) > 100  # the smallest may be too short to hook


CXX = """
#include <cstdio>
#include <string>
struct Object {
    int value;
    __attribute__((noipa)) long add(int x, const int &y) const { return value + x + y; }
    __attribute__((noipa)) static int twice(int x) { return 2 * x + 1; }
    __attribute__((noipa)) virtual double scaled(double by) { return value * by; }
};
struct Destroyed { int a; ~Destroyed() { a = 0; } };
enum class Level : unsigned char { low = 3, high = 250 };
namespace n {
__attribute__((noipa)) std::string text(int a, const std::string &s, int b) { return s + std::to_string(a + b); }
__attribute__((noipa)) int level(Level level, bool on, Destroyed d, int last) { return last + d.a + on + (int)level; }
template <class T> __attribute__((noipa)) T largest(T a, T b) { return a < b ? b : a; }
}
int main()
{
    Object object{};
    object.value = 5;
    int seven = 7;
    long sum = object.add(6, seven) + Object::twice(8) + (long)object.scaled(1.5) + (long)n::text(3, "abc", 4).size();
    sum += n::level(Level::high, true, Destroyed{1}, -9) + n::largest(2, 3) + (long)n::largest(2.5, 0.5);
    std::printf("%ld\\n", sum);
    return 0;
}
"""


def test_members_references_and_results_in_memory_of_cxx_are_understood(tmp_path: Path) -> None:
    (tmp_path / "auto.cpp").write_text(CXX)
    compile_files("gcc", [tmp_path / "auto.cpp"], tmp_path / "auto", ("-O1", "-g"))
    ended = run([*recorder("--libcalls", "none", "--auto-args", trace=tmp_path / "t"), str(tmp_path / "auto")])
    assert (ended.errors, ended.status) == ("", 0)
    values = {name: calls[0] for name, calls in read_counts(tmp_path / "t").values.items()}
    pointer = r"0x[0-9a-f]+"

    def is_like(name: str, arguments: str, result: str | None) -> None:
        found = next(value for mangled, value in values.items() if name in mangled)
        assert re.fullmatch(arguments, found[0] or ""), found
        assert found[1] == result if result is None else re.fullmatch(result, found[1] or ""), found

    is_like("3add", f"this={pointer}, x=6, y={pointer}", "18")
    is_like("5twice", "x=8", "17")
    is_like("6scaled", f"this={pointer}, by=1.5", "7.5")
    is_like("4text", f"a=3, s={pointer}, b=4", f"{pointer}|")
    is_like("5level", f"level=250, on=true, d={pointer}, last=-9", "243")
    is_like("7largestIi", "a=2, b=3", "3")
    is_like("7largestId", "a=2.5, b=0.5", "2.5")


def test_a_specification_goes_before_debug_information(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        "__attribute__((noipa)) int f(int a, int b) { return a - b; }\nint main(void) { return f(3, 3); }\n"
    )
    compile_files("gcc", [tmp_path / "a.c"], tmp_path / "a", ("-O1", "-g"))
    command = recorder("--libcalls", "none", "--auto-args", "--args", "f(_, u8 second)", trace=tmp_path / "t")
    assert run([*command, str(tmp_path / "a")]).status == 0
    assert read_counts(tmp_path / "t").values["f"] == [("second=3", None)]


def test_that_there_is_no_debug_information_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int main(void) { return 0; }\n")
    compile_files("gcc", [tmp_path / "a.c"], tmp_path / "a", ("-O1", "-g0", "-s"))
    command = recorder("--libcalls", "none", "--auto-args", trace=tmp_path / "t")
    ended = run([*(word for word in command if word != "-q"), str(tmp_path / "a")])
    assert (
        "shadowgraph: --auto-args found no debug information for the traced functions (build with -g)" in ended.errors
    )
