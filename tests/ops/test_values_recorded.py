"""Captured values are what the program passed and returned: random signatures, more values than registers."""

from __future__ import annotations

import random
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shadowgraph.ops.values import TYPE_NAMES, parse_rule
from tests.support.build import compile_files
from tests.support.counts import read_counts
from tests.support.manners import recorder, run

C_TYPES = {
    "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "f32": "float", "f64": "double", "bool": "_Bool", "char": "char", "ptr": "void *", "str": "const char *",
}  # fmt: skip
RESULTS = [
    (), ("i32",), ("u64",), ("i8",), ("u16",), ("f64",), ("f32",), ("str",), ("ptr",), ("bool",), ("char",),
    ("u64", "i64"), ("f64", "f64"), ("i64", "f64"), ("f64", "u64"),
]  # fmt: skip
TEXTS = ["", "a", "hello", "two words", "x" * 127, "exactly eight", "12345678", "grün"]
ROOM = 60  # words that the captured values of one call may take (native/agent/values.c)


@dataclass
class Case:
    """One function: types of its arguments (`_` for those not captured) and results, and what it is called with."""

    name: str
    arguments: list[tuple[str, str, object]]  # type in C, type in the specification, value
    results: list[tuple[str, object]]
    words: int = field(default=0)

    def specification(self) -> str:
        inner = ", ".join(kind for _, kind, _ in self.arguments)
        types = [kind for kind, _ in self.results]
        result = f" -> {types[0]}" if len(types) == 1 else f" -> ({', '.join(types)})" if types else ""
        return f"{self.name}({inner}){result}"

    def agrees(self, arguments: str | None, result: str | None) -> bool:
        """Whether these are the texts of the call."""
        return same([(kind, value) for _, kind, value in self.arguments if kind != "_"], arguments) and same(
            self.results, result
        )


def same(values: list[tuple[str, object]], text: str | None) -> bool:
    parts = text.split(", ") if text is not None else []
    return len(parts) == len(values) and all(is_shown(*value, part) for value, part in zip(values, parts, strict=True))


def is_shown(kind: str, value: object, text: str) -> bool:
    """Whether a text shows a value; floating-point numbers read back as the same of their size."""
    if kind == "f32":
        return struct.pack("<f", float(text)) == struct.pack("<f", value) and len(text) < 15
    return float(text) == value if kind == "f64" else text == shown_as(kind, value)


def shown_as(kind: str, value: object) -> str:
    """A value as docs/trace-format.md says it is shown."""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "str":
        return f'"{value}"'
    if kind == "char":
        return f"'{value}'"
    if kind == "ptr":
        return "NULL" if value == 0 else f"{value:#x}"
    return str(value)


def value_of(kind: str, chance: random.Random) -> object:
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "char":
        return chance.choice("azAZ09 +")
    if kind == "str":
        return chance.choice(TEXTS)
    if kind == "ptr":
        return chance.choice([0, 1, 0xDEADBEEF, 0x7FFF_FFFF_F000])
    if kind in ("f32", "f64"):
        value = chance.choice([0.0, -1.5, 0.1, 1e10, -2.5e-7, 123456.789, chance.uniform(-1e6, 1e6)])
        return struct.unpack("<f", struct.pack("<f", value))[0] if kind == "f32" else value
    bits, signed = int(kind[1:]), kind[0] == "i"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return chance.choice([low, high, 0, 1, chance.randint(low, high)])


def literal(kind: str, value: object) -> str:
    if kind == "str":
        return f'"{value}"'
    if kind == "char":
        return f"'{value}'"
    if kind == "bool":
        return str(int(bool(value)))
    if kind in ("f32", "f64"):
        return f"({C_TYPES[kind]}){float(str(value)).hex()}"
    if kind == "ptr":
        return f"(void *){value}ull"
    assert isinstance(value, int)
    return f"({C_TYPES[kind]}){value & (1 << 64) - 1}ull"


def words_of(kind: str, value: object) -> int:
    return 2 + (len(str(value).encode()) + 7) // 8 if kind == "str" else 1


def make(number: int, chance: random.Random) -> Case:
    results = [(kind, value_of(kind, chance)) for kind in chance.choice(RESULTS)]
    case = Case(f"f{number}", [], results, sum(words_of(*result) for result in results))
    for _ in range(chance.choice([0, 1, 3, 7, 12, 18])):
        kind = chance.choice([*C_TYPES, "f64", "f64", "i64"])
        value = value_of(kind, chance)
        shown = "_" if kind not in ("f32", "f64") and chance.random() < 0.1 else kind
        needed = words_of(kind, value)
        if case.words + needed <= ROOM:
            case.words += needed
            case.arguments.append((kind, shown, value))
    return case


def source(cases: list[Case]) -> str:
    """A program that calls each function once, and each checks what it gets."""
    lines = ["#include <stdint.h>", "#include <stdio.h>", "#include <string.h>", "static int wrong;"]
    calls = []
    for case in cases:
        declared = ", ".join(f"{C_TYPES[kind]} a{i}" for i, (kind, _, _) in enumerate(case.arguments)) or "void"
        members = " ".join(f"{C_TYPES[kind]} r{i};" for i, (kind, _) in enumerate(case.results))
        result = C_TYPES[case.results[0][0]] if len(case.results) == 1 else f"struct {case.name}_result"
        if len(case.results) == 2:
            lines.append(f"struct {case.name}_result {{ {members} }};")
        lines.append(f"__attribute__((noipa)) {result if case.results else 'void'} {case.name}({declared})\n{{")
        for i, (kind, _, value) in enumerate(case.arguments):
            same = f"!strcmp(a{i}, {literal(kind, value)})" if kind == "str" else f"a{i} == {literal(kind, value)}"
            lines.append(f"    wrong += !({same});")
        if case.results:
            values = ", ".join(literal(kind, value) for kind, value in case.results)
            lines.append(f"    return {values};" if len(case.results) == 1 else f"    return ({result}){{{values}}};")
        lines.append("}")
        calls.append(f"    {case.name}({', '.join(literal(kind, value) for kind, _, value in case.arguments)});")
    lines += ["int main(void)\n{", *calls, '    puts(wrong ? "wrong" : "OK");', "    return wrong != 0;", "}"]
    return "\n".join(lines)


@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
@pytest.mark.parametrize("seed", [1, 2])
def test_captured_text_is_what_the_program_passed_and_returned(seed: int, optimisation: str, tmp_path: Path) -> None:
    chance = random.Random(seed)
    cases = [make(number, chance) for number in range(120)]
    (tmp_path / "values.c").write_text(source(cases))
    compile_files("gcc", [tmp_path / "values.c"], tmp_path / "values", (optimisation, "-fwrapv"))
    options = [part for case in cases for part in ("--args", case.specification())]
    command = recorder("--libcalls", "none", *options, trace=tmp_path / "t.sgt")
    ended = run([*command, str(tmp_path / "values")])
    assert (ended.output, ended.errors, ended.status) == ("OK\n", "", 0)
    counts = read_counts(tmp_path / "t.sgt")
    for case in cases:
        assert counts.calls[case.name] == 1
        arguments, result = counts.values.get(case.name, [(None, None)])[0]
        assert case.agrees(arguments, result), (case, arguments, result)


# --- specifications ---

PROGRAM = """
#include <stdio.h>
__attribute__((noipa)) long plain(long a, long b) { return a - b; }
__attribute__((noipa)) double half(double x) { return x / 2; }
__attribute__((noipa)) const char *text(const char *s) { return s; }
int main(void)
{
    plain(7, 9); half(3); text("hi"); text((const char *)8); text(NULL); text((const char *)0x7ffffffff000);
    puts("OK");
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("specifications")
    (folder / "plain.c").write_text(PROGRAM)
    compile_files("gcc", [folder / "plain.c"], folder / "plain", ("-O1",))
    return folder / "plain"


def captured(program: Path, tmp_path: Path, *specifications: str) -> dict[str, list[tuple[str | None, str | None]]]:
    options = [part for text in specifications for part in ("--args", text)]
    trace = tmp_path / "t.sgt"
    ended = run([*recorder("--force", "--libcalls", "none", *options, trace=trace), str(program)])
    assert (ended.output, ended.errors, ended.status) == ("OK\n", "", 0)
    return read_counts(trace).values


@pytest.mark.parametrize(
    ("specification", "shown"),
    [
        ("plain(i64, i64) -> i64", ("7, 9", "-2")),
        ("plain(long a, long b) -> long", ("a=7, b=9", "-2")),
        ("plain(a: i64, b: i64)", ("a=7, b=9", None)),
        ("plain(_, i64)", ("9", None)),
        ("plain(_, _) -> i8", (None, "-2")),
        ("plain() -> ptr", (None, "0xfffffffffffffffe")),
        ("pl*(u8,u8)", ("7, 9", None)),
        ("re:^plain$(u8)", ("7", None)),
        ("  plain ( u8 ) ", ("7", None)),
        ("plain(void *x)", ("x=0x7", None)),
        ("plain(const void *)", ("0x7", None)),
    ],
)
def test_specifications_may_be_written_in_many_ways(
    specification: str, shown: tuple[str | None, str | None], program: Path, tmp_path: Path
) -> None:
    assert captured(program, tmp_path, specification)["plain"] == [shown]


def test_the_last_specification_that_matches_counts(program: Path, tmp_path: Path) -> None:
    values = captured(program, tmp_path, "*(u8)", "plain(u8, u8)", "half(f64) -> f64")
    assert values["plain"] == [("7, 9", None)]
    assert values["half"] == [("3", "1.5")]
    assert len(values["text"]) == 4


def test_a_pointer_that_points_nowhere_is_shown_as_one(program: Path, tmp_path: Path) -> None:
    values = captured(program, tmp_path, "text(str) -> str")["text"]
    assert values == [('"hi"', '"hi"'), ("0x8", "0x8"), ("NULL", "NULL"), ("0x7ffffffff000", "0x7ffffffff000")]


@pytest.mark.parametrize(
    ("specification", "sentence"),
    [
        ("plain", "write it like 'malloc(u64 size) -> ptr'"),
        ("plain(", "write it like"),
        ("(u8)", "write it like"),
        ("plain(u8) ->", "write it like"),
        ("plain(u9)", "'u9' is not a type; types are"),
        ("plain(u8 a b)", "'u8 a b' is not a type"),
        ("plain(u8) -> (u8, u8, u8)", "at most two results"),
        ("plain(" + ",".join(["u8"] * 21) + ")", "at most 20 values"),
        ("re:[(u8)", "is not a regular expression"),
    ],
)
def test_specifications_that_say_nothing_are_refused(
    specification: str, sentence: str, program: Path, tmp_path: Path
) -> None:
    ended = run([*recorder("--args", specification, trace=tmp_path / "t.sgt"), str(program)])
    assert sentence in ended.errors.splitlines()[0]  # a mark below the place follows
    assert (ended.output, ended.status) == ("", 2)
    assert not (tmp_path / "t.sgt").exists()


def test_a_specification_that_no_function_has_is_named(program: Path, tmp_path: Path) -> None:
    command = recorder("--args", "plian(u8)", trace=tmp_path / "t.sgt")
    ended = run([*(word for word in command if word != "-q"), str(program)])
    assert "shadowgraph: --args 'plian(u8)' matched no traced function\n" in ended.errors


def test_zeros_among_captured_values_do_not_hold_up_the_recording(tmp_path: Path) -> None:
    (tmp_path / "zeros.c").write_text(
        "#include <stdio.h>\n__attribute__((noipa)) long f(long a, long b) { return a * b; }\n"
        'int main(void) { for (int i = 0; i < 100000; i++) f(0, 0); puts("OK"); return 0; }\n'
    )
    compile_files("gcc", [tmp_path / "zeros.c"], tmp_path / "zeros", ("-O1",))
    command = recorder("--libcalls", "none", "--buffer", "512K", "--args", "f(i64, i64) -> i64", trace=tmp_path / "t")
    ended = run([*command, str(tmp_path / "zeros")])
    assert (ended.output, ended.errors, ended.status) == ("OK\n", "", 0)
    counts = read_counts(tmp_path / "t")
    assert counts.values["f"] == [("0, 0", "0")] * 100000
    assert (counts.missed, counts.dropped) == (0, 0)


def test_help_page_and_mistakes_name_every_type() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    shown = run([*recorder()[:3], "record", "--help"]).output
    mistake = run([*recorder("--args", "f(nosuch)"), "true"]).errors
    for name in TYPE_NAMES:
        assert parse_rule(f"f({name} x) -> {name}").signature.arguments[0].name == "x"
        assert f"`{name}`" in page
        for text in (shown, mistake):
            assert name in re.split(r"[\s,;.()]+", text), name
