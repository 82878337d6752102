"""Parameters and results as the source says, and where the ABI puts them, held against compiled code."""

from __future__ import annotations

import random

import pytest

from shadowgraph.image import open_image
from shadowgraph.image.abi import STACK, place_arguments, place_result
from shadowgraph.image.signatures import Signature, has_source_signature, read_signatures
from shadowgraph.image.value_types import PassedAs, ValueKind
from tests.support.elf_files import compile_text, run, symbol_addresses

pytestmark = pytest.mark.usefixtures("needs_libdw")


C_SOURCE = """
#include <stdbool.h>
#include <stddef.h>
enum color { RED = 1, GREEN = 200, BLUE = -4 };
typedef unsigned long id_type;
struct pair { double x, y; };
struct far { char room[300]; int last; };
int f1(char a, unsigned char b, short c, id_type d, const char *s, void *p, int **q, unsigned char *raw) { return a; }
double f2(float a, double b, long double c, bool d, enum color e) { return a; }
struct pair f3(struct pair p, struct far f) { return p; }
void f4(const char *format, ...) { }
id_type f5(void) { return 0; }
int main(void) { return 0; }
"""
CXX_SOURCE = """
#include <string>
#include <memory>
struct Plain { int a; float b; };
struct Destroyed { int a; ~Destroyed(); };
Destroyed::~Destroyed() { a = 0; }
struct Copied { int a; Copied(const Copied &other); Copied(); };
Copied::Copied(const Copied &other) : a(other.a) {}
Copied::Copied() : a(0) {}
struct Holds { std::string text; };
struct Virtual { virtual int f() { return 1; } int a; };
struct Defaulted { int a; Defaulted(const Defaulted &) = default; ~Defaulted() = default; };
namespace inner { struct Object { int value; int method(int x) const; }; }
int inner::Object::method(int x) const { return value + x; }
extern "C" void f1(Plain p, Destroyed d, Copied c, Holds h, Virtual v, Defaulted t) {}
extern "C" void f2(std::string s, const std::string &r, std::unique_ptr<int> u) {}
int main() { return inner::Object{1}.method(2) + Virtual().f(); }
"""
INCOMPLETE = """
struct Elsewhere { virtual int f(); int a; };
extern "C" void f1(int a, Elsewhere e, int b) {}
int main() { return 0; }
"""


def signatures(source: str, flags: str, compiler: str) -> dict[str, Signature]:
    path = compile_text(source, flags, compiler)
    addresses = symbol_addresses(path)
    found = read_signatures(open_image(path)).find(list(addresses.values()))
    return {name: signature for name, signature in zip(addresses, found, strict=True) if signature is not None}


def shown(signature: Signature) -> list[tuple[str, str, ValueKind]]:
    return [(parameter.name, parameter.type.name, parameter.type.kind) for parameter in signature.parameters]


@pytest.mark.parametrize("flags", ["-g -O0", "-g -O2 -gdwarf-4"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_parameters_are_told_as_in_the_source(flags, compiler):
    found = signatures(C_SOURCE, flags, compiler)
    kind = ValueKind
    assert [(name, what) for name, _, what in shown(found["f1"])] == [
        ("a", kind.CHARACTER),
        ("b", kind.UNSIGNED),
        ("c", kind.SIGNED),
        ("d", kind.UNSIGNED),
        ("s", kind.STRING),
        ("p", kind.POINTER),
        ("q", kind.POINTER),
        ("raw", kind.POINTER),
    ]
    assert [name for _, name, _ in shown(found["f1"])][3:7] == ["id_type", "const char *", "void *", "int **"]
    assert [p.type.size for p in found["f1"].parameters] == [1, 1, 2, 8, 8, 8, 8, 8]
    assert found["f1"].result.kind == kind.SIGNED
    assert [what for _, _, what in shown(found["f2"])] == [kind.FLOAT, kind.FLOAT, kind.FLOAT, kind.BOOL, kind.ENUM]
    assert found["f2"].parameters[4].type.enumerators == {1: "RED", 200: "GREEN", -4: "BLUE"}
    assert found["f3"].result.passed == (PassedAs.SSE, PassedAs.SSE)
    assert found["f3"].parameters[1].type.passed == (PassedAs.MEMORY,)
    assert found["f3"].parameters[1].type.size == 304
    assert found["f4"].is_variadic and not found["f3"].is_variadic
    assert found["f4"].result.kind == kind.VOID
    assert (found["f5"].parameters, found["f5"].result.name) == ((), "id_type")


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_classes_that_cannot_be_copied_plainly_go_by_reference(compiler):
    # By default clang describes std::string only in the library that instantiates it.
    whole = " -fstandalone-debug" if compiler == "clang++" else ""
    found = signatures(CXX_SOURCE, f"-g -O0 -std=c++17{whole}", compiler)
    by_reference = [parameter.type.by_reference for parameter in found["f1"].parameters]
    assert by_reference == [False, True, True, True, True, False]
    assert [parameter.type.by_reference for parameter in found["f2"].parameters] == [True, False, True]
    assert found["f2"].parameters[1].type.kind == ValueKind.POINTER
    method = next(signature for signature in found.values() if signature.name == "method")
    assert [(p.name, p.type.kind) for p in method.parameters] == [("this", ValueKind.POINTER), ("x", ValueKind.SIGNED)]


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_behind_a_parameter_of_unknown_type_nothing_is_claimed(compiler):
    signature = signatures(INCOMPLETE, "-g -O0", compiler)["f1"]
    types = [parameter.type for parameter in signature.parameters]
    assert types[1].kind == ValueKind.UNKNOWN
    places = place_arguments(types, signature.result)
    assert places[0] is not None and places[0][0].register == "rdi"
    assert places[1:] == [None, None]


def test_clones_with_other_parameters_are_known_by_name():
    assert not has_source_signature("f.constprop.0")
    assert not has_source_signature("f.isra.0.cold")
    assert not has_source_signature("f.part.0")
    assert has_source_signature("f")
    assert has_source_signature("f.lto_priv.0")


def test_no_debug_information_is_said():
    table = read_signatures(open_image(compile_text("int main(void) { return 0; }", "-O2")), debug_roots=())
    assert "no debug information" in table.remark
    assert table.find([0x1000]) == [None]


# --- places, against what a compiler does ---

TYPES = [
    ("char", 1), ("short", 2), ("int", 4), ("long", 8), ("char *", 8), ("float", 4), ("double", 8), ("long double", 10),
    ("__int128", 16), ("struct dd", 16), ("struct id", 16), ("struct big", 24), ("struct ff", 12), ("struct ten", 10),
    ("struct one", 4), ("union both", 8), ("struct wide", 16), ("__m128", 16), ("struct packed", 9), ("struct ll", 16),
    ("float _Complex", 8), ("double _Complex", 16), ("struct x87", 10), ("struct bits", 8), ("struct nest", 16),
]  # fmt: skip
HEAD = """
#include <stdio.h>
#include <string.h>
#include <immintrin.h>
struct dd { double a, b; };
struct id { int a; float b; double c; };
struct big { long a[3]; };
struct ff { float a, b, c; };
struct ten { char c[10]; };
struct one { float a; };
union both { double d; long l; };
struct wide { __int128 v; };
struct packed { char c; double d; } __attribute__((packed));
struct ll { long a, b; };
struct x87 { long double v; };
struct bits { unsigned a : 3; unsigned long b : 40; };
struct nest { struct one a; struct { int b; struct { float c, d; } e; } f; };
struct { unsigned long integer[6]; unsigned char vector[8][16]; unsigned char stack[600]; } seen;
__asm__(".text\\n.globl capture\\n.type capture, @function\\ncapture:\\n"
        "lea seen(%rip), %rax\\n"
        "mov %rdi, (%rax)\\nmov %rsi, 8(%rax)\\nmov %rdx, 16(%rax)\\nmov %rcx, 24(%rax)\\n"
        "mov %r8, 32(%rax)\\nmov %r9, 40(%rax)\\n"
        "movups %xmm0, 48(%rax)\\nmovups %xmm1, 64(%rax)\\nmovups %xmm2, 80(%rax)\\nmovups %xmm3, 96(%rax)\\n"
        "movups %xmm4, 112(%rax)\\nmovups %xmm5, 128(%rax)\\nmovups %xmm6, 144(%rax)\\nmovups %xmm7, 160(%rax)\\n"
        "lea 176(%rax), %rdi\\nmov %rsp, %rsi\\nmov $75, %ecx\\nrep movsq\\nret\\n");
extern void capture(void);
static void show(const void *at, unsigned long size) {
    for (unsigned long i = 0; i < size; i++) printf("%02x", ((const unsigned char *)at)[i]);
    printf(" ");
}
static void fill(void *at, unsigned long size, int seed) {
    for (unsigned long i = 0; i < size; i++) ((unsigned char *)at)[i] = seed * 37 + i * 11 + 1;
}
"""
CASES = 60


def random_program(seed: int, types: list[tuple[str, int]]) -> tuple[str, list[list[tuple[str, int]]]]:
    """A program with functions of random parameters, each called once with known bytes; and the parameters."""
    chooser = random.Random(seed)
    cases = [[chooser.choice(types) for _ in range(chooser.randint(1, 12))] for _ in range(CASES)]
    functions, calls = [], []
    for number, case in enumerate(cases):
        # Results in memory take a register away from the arguments.
        result = chooser.choice(["void", "long", "struct big", "struct dd"])
        parameters = ", ".join(f"{name} p{i}" for i, (name, _) in enumerate(case))
        body = f"static {result} kept; return kept;" if result != "void" else ""
        functions.append(f"{result} f{number}({parameters}) {{ {body} }}")
        values = "".join(
            f"{name} v{i}; memset(&v{i}, 0, sizeof v{i}); "
            + (f"v{i} = {number * 3 + i}.5L; " if name == "long double" else "")
            + (f"v{i}.v = {number * 3 + i}.25L; " if name == "struct x87" else "")
            + (f"fill(&v{i}, sizeof v{i}, {number + i * 7}); " if name not in ("long double", "struct x87") else "")
            for i, (name, _) in enumerate(case)
        )
        arguments = ", ".join(f"v{i}" for i in range(len(case)))
        shows = "".join(f"show(&v{i}, {size}); " for i, (_, size) in enumerate(case))
        pointer = f"(({result} (*)({', '.join(name for name, _ in case)}))capture)"
        calls.append(f'{{ {values} {pointer}({arguments}); show(&seen, sizeof seen); {shows} puts(""); }}')
    return HEAD + "\n".join(functions) + "\nint main(void) {\n" + "\n".join(calls) + "\nreturn 0; }\n", cases


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_arguments_are_where_they_are_said_to_be(compiler, seed):
    # clang before version 18 puts a bare __int128 on the stack at multiples of 8, against the ABI and gcc.
    types = [item for item in TYPES if compiler == "gcc" or item[0] != "__int128"]
    source, cases = random_program(seed, types)
    path = compile_text(source, "-g -O1 -w", compiler)
    found = signatures(source, "-g -O1 -w", compiler)
    for number, line in enumerate(run(path).splitlines()):
        seen, *values = line.split()
        signature = found[f"f{number}"]
        types = [parameter.type for parameter in signature.parameters]
        for i, places in enumerate(place_arguments(types, signature.result)):
            assert places is not None
            expected = values[i]
            got = "".join(captured(bytes.fromhex(seen), place.register, place.offset, place.size) for place in places)
            case = f"f{number}, parameter {i} of {[name for name, _ in cases[number]]}: {places}"
            assert significant(got, cases[number][i][0]) == significant(expected, cases[number][i][0]), case


def captured(seen: bytes, register: str, offset: int, size: int) -> str:
    if register == STACK:
        return seen[176 + offset :][:size].hex()
    if register.startswith("xmm"):
        return seen[48 + 16 * int(register[3:]) :][:size].hex()
    return seen[8 * ["rdi", "rsi", "rdx", "rcx", "r8", "r9"].index(register) :][:size].hex()


def significant(text: str, name: str) -> str:
    """Without the bytes that are padding: the ABI leaves them undefined."""
    return text[:20] if name in ("long double", "struct x87") else text


@pytest.mark.parametrize(
    ("result", "places"),
    [
        ("int", [("rax", 4)]),
        ("char *", [("rax", 8)]),
        ("float", [("xmm0", 4)]),
        ("__int128", [("rax", 8), ("rdx", 8)]),
        ("long double", [("st0", 16)]),
        ("long double _Complex", [("st0", 16), ("st1", 16)]),
        ("struct dd", [("xmm0", 8), ("xmm1", 8)]),
        ("struct id", [("rax", 8), ("xmm0", 8)]),
        ("struct big", [("rax", 8)]),
        ("struct x87", [("st0", 16)]),
        ("__m128", [("xmm0", 16)]),
        ("void", []),
    ],
)
def test_results_are_where_the_abi_says(result, places):
    body = f"static {result} kept; return kept;" if result != "void" else ""
    found = signatures(HEAD + f"{result} give(void) {{ {body} }} int main(void) {{ return 0; }}", "-g -O1 -w", "gcc")
    assert [(place.register, place.size) for place in place_result(found["give"].result)] == places
