"""What --function, --not, --module, --libcalls and --all choose of a real program and its library."""

from __future__ import annotations

import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest

from shadowgraph.image import Reason, open_image, read_functions
from shadowgraph.patch import plan_module
from tests.support.build import PROGRAMS, compile_files, scratch_folder
from tests.support.counts import Counts, read_counts
from tests.support.elf_files import compile_text
from tests.support.live import SHADOWGRAPH
from tests.support.manners import Ended, recorder, run, usual_environment
from tests.support.traces import plain_names

DIRECT = {"library_direct": 10, "malloc": 1, "free": 1}
OWN = {
    "main": 1,
    "plain": 10,
    "parse_float": 10,
    "parse_int": 10,
    "shapes::grow": 10,
    "shapes::Circle::area": 10,
    "shapes::Circle::operator<": 10,
    "doubled<int>": 10,
    "doubled<double>": 10,
}
IMPORTS_OF_LIBC = {"printf", "malloc", "free", "__libc_start_main", "__cxa_finalize"}


@cache
def program() -> Path:
    """selection.cpp with its library beside it."""
    folder = scratch_folder() / "selection"
    folder.mkdir()
    library = folder / "libselection.so"
    compile_files("gcc", [PROGRAMS / "selection.shared.c"], library, ("-O1", "-shared", "-fPIC"))
    linked = (f"-L{folder}", "-lselection", f"-Wl,-rpath,{folder}", "-lselection")
    compile_files("gcc", [PROGRAMS / "selection.cpp"], folder / "selection", ("-O1", *linked))
    return folder / "selection"


def recorded(*options: str, tmp_path: Path) -> tuple[Ended, Counts]:
    trace = tmp_path / "t.sgt"
    ended = run([*recorder(*options, trace=trace), str(program())])
    return ended, read_counts(trace)


def chosen(*options: str, tmp_path: Path) -> dict[str, int]:
    """How often the functions of the program and its library, malloc and free were called, as the trace says."""
    ended, counts = recorded(*options, tmp_path=tmp_path)
    assert (ended.output, ended.errors, ended.status) == (run([str(program())]).output, "", 0)
    names = list(counts.calls)
    interesting = {*OWN, *DIRECT, "library_inner", "library_unused"}
    found: dict[str, int] = {}
    for name, plain in zip(names, plain_names(names), strict=True):
        short = plain.rpartition(" ")[2] if "doubled" in plain else plain
        if short in interesting:
            found[short] = found.get(short, 0) + counts.calls[name]
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", OWN | DIRECT),
        ("--libcalls none", OWN),
        ("--libcalls direct", OWN | DIRECT),
        ("-f plain", {"plain": 10}),
        ("-f parse_*", {"parse_int": 10, "parse_float": 10}),
        ("-f parse_int", {"parse_int": 10}),
        ("-f parse_int(int)", {"parse_int": 10}),
        ("-f _Z9parse_inti", {"parse_int": 10}),
        ("-f shapes::*", {"shapes::grow": 10, "shapes::Circle::area": 10, "shapes::Circle::operator<": 10}),
        ("-f shapes::Circle::area", {"shapes::Circle::area": 10}),
        ("-f re:^shapes::Circle::(area|operator<)", {"shapes::Circle::area": 10, "shapes::Circle::operator<": 10}),
        ("-f *doubled<*", {"doubled<int>": 10, "doubled<double>": 10}),
        ("-f doubled*", {"doubled<int>": 10, "doubled<double>": 10}),
        ("-f doubled<int>", {"doubled<int>": 10}),
        ("-f re:^doubled -n doubled<int>*", {"doubled<double>": 10}),
        ("-f parse_* -n parse_int", {"parse_float": 10}),
        ("-n parse_int -f parse_*", OWN | DIRECT),
        ("-f parse_* -n parse_int -f parse_int", {"parse_int": 10, "parse_float": 10}),
        ("-n * --libcalls none -f main", {"main": 1}),
        ("-n shapes::*", {k: v for k, v in (OWN | DIRECT).items() if "shapes" not in k}),
        ("-n malloc -n free", OWN | {"library_direct": 10}),
        ("-f malloc", {"malloc": 1}),
        ("-f malloc --libcalls none -f plain", {"plain": 10}),
        ("-f library_*", {"library_direct": 10}),
        ("-m libselection.so", {"library_direct": 10, "library_inner": 10}),
        ("-m libselection*", {"library_direct": 10, "library_inner": 10}),
        ("-m selection", OWN),
        ("-m re:^lib.*tion -n *inner", {"library_direct": 10}),
        ("-f libselection.so!*inner", {"library_inner": 10}),
        ("-f selection!plain -f libsel*!library_inner", {"plain": 10, "library_inner": 10}),
        ("-n libselection.so!*", OWN | {"malloc": 1, "free": 1}),
        ("-f plain -m libselection.so", {"plain": 10, "library_direct": 10, "library_inner": 10}),
        ("--all -n libc.so*!* -n ld-*!*", OWN | {"library_direct": 10, "library_inner": 10}),
    ],
)
def test_options_choose(options: str, expected: dict[str, int], tmp_path: Path) -> None:
    assert chosen(*options.split(), tmp_path=tmp_path) == expected


def test_all_library_calls_are_those_that_libraries_make_too(tmp_path: Path) -> None:
    direct = recorded("--libcalls", "direct", tmp_path=tmp_path)[1]
    every = recorded("--force", "--libcalls", "all", tmp_path=tmp_path)[1]
    assert every.calls["library_direct"] == direct.calls["library_direct"] == 10
    assert every.calls["malloc"] > direct.calls["malloc"] == 1  # printf makes a buffer
    assert "library_inner" not in every.calls


def test_all_is_all_functions_of_all_modules(tmp_path: Path) -> None:
    counts = recorded("--all", tmp_path=tmp_path)[1]
    called = {counts.modules[name] for name in counts.calls}
    assert {"selection", "libselection.so", "libc.so.6"} <= called
    assert counts.calls["library_inner"] == 10


def test_the_agents_own_functions_are_never_hooked(tmp_path: Path) -> None:
    for options in (("--all",), ("-m", "*agent*", "-f", "main"), ("-m", "*", "-f", "agent.s?!*")):
        counts = recorded("--force", *options, tmp_path=tmp_path)[1]
        assert not [name for name, module in counts.modules.items() if "agent" in module]


def test_that_the_agent_is_never_hooked_is_said_to_whom_asks_for_it(tmp_path: Path) -> None:
    command = recorder("-m", "agent.s?", "-f", "main", trace=tmp_path / "t.sgt")
    ended = run([*(word for word in command if word != "-q"), str(program())])
    assert "shadowgraph: no function matched agent.s?; Shadowgraph's own code is never traced" in ended.errors


def test_rules_that_were_for_nothing_are_named(tmp_path: Path) -> None:
    command = recorder("-f", "main", "-f", "mian", "-n", "plian", trace=tmp_path / "t.sgt")
    ended = run([*(word for word in command if word != "-q"), str(program())])
    assert "no function matched mian; the nearest names are main" in ended.errors
    assert "no function matched plian" in ended.errors
    assert "matched main" not in ended.errors


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("library_inner", "libselection.so!library_inner"),
        ("library_i*", "libselection.so!library_i*"),
        ("re:^library_i", "libselection.so!re:^library_i"),
        ("library_iner", "libselection.so!library_inner"),
        ("libselection.so!library_iner", "libselection.so!library_inner"),
        ("dubled<int>", "doubled<int>"),
    ],
)
def test_what_is_suggested_can_be_copied_and_works(text: str, suggestion: str, tmp_path: Path) -> None:
    path, trace = str(program()), tmp_path / "t.sgt"
    # A recording goes on without functions of a library: one of that name may be loaded later.
    for command in ("count", "hist") if "!" in text else ("record", "count", "hist"):

        def started(pattern: str, command: str = command) -> Ended:
            words = [*SHADOWGRAPH, command, "-f", pattern, "--"]
            return run([*(words if command != "record" else recorder("-f", pattern, trace=trace)), path])

        sentence = started(text).sentence
        assert f"no function matches {text}; " in sentence
        found = [word.strip(",") for word in sentence.partition("; ")[2].split()]
        assert shlex.quote(suggestion) in found
        ended = started(suggestion)
        assert (ended.status, ended.errors) == (0, "")


def test_of_a_stripped_program_it_is_said_why_names_are_not_known(tmp_path: Path) -> None:
    path = str(tmp_path / "stripped")
    subprocess.run(["strip", "-o", path, str(program())], check=True)
    said = "no function matches parse_intt; stripped is stripped: most of its functions go by their addresses, like"
    environment = usual_environment() | {"LD_LIBRARY_PATH": str(program().parent)}
    for words in (["count", "-f", "parse_intt", "--", path], ["functions", "-f", "parse_intt", path]):
        sentence = run([*SHADOWGRAPH, *words], environment=environment).sentence
        assert said.partition("; ")[0] in sentence
        assert said.partition("; ")[2] in sentence


def test_a_library_that_is_known_by_another_name_is_suggested(tmp_path: Path) -> None:
    folder, source = scratch_folder() / "named", PROGRAMS / "selection.shared.c"
    folder.mkdir(exist_ok=True)
    library, path = folder / "libselection.so.1.2", folder / "selection"
    compile_files("gcc", [source], library, ("-O1", "-shared", "-fPIC", "-Wl,-soname,libselection.so.1"))
    (folder / "libselection.so.1").unlink(missing_ok=True)
    (folder / "libselection.so.1").symlink_to(library.name)
    compile_files("gcc", [PROGRAMS / "selection.cpp", library], path, ("-O1", f"-Wl,-rpath,{folder}"))
    for module in ("libselection.so.1", "libselection", "libselection.so"):
        ended = run([*SHADOWGRAPH, "count", "-f", f"{module}!library_*", "--", str(path)])
        assert "; 'libselection.so.1.2!library_*' may be meant" in ended.errors
    ended = run([*SHADOWGRAPH, "count", "-f", "libselection.so.1.2!library_*", "--", str(path)])
    assert (ended.status, ended.errors) == (0, "")
    assert "may be meant" not in run([*SHADOWGRAPH, "count", "-f", "libother.so!x", "--", str(path)]).errors


# The cold part of split is entered by a conditional jump with no frame built: its unwind entry looks like a function's.
COLD = """
static volatile long complaints;
__attribute__((cold, noinline, noclone)) long complain(long x) { complaints += x; return x; }
__attribute__((noinline, noclone)) long split(long x)
{
    if (x == 7) { complaints = 3; return complain(x + 1); }
    return x * 3;
}
int main(int count, char **words) { return split(count) + split(count + 6); }
"""


def test_the_summary_counts_no_part_of_a_function_as_one_that_could_not_be_hooked(tmp_path: Path) -> None:
    cold = compile_text(COLD, "-O2 -s")
    image = open_image(cold)
    assert (plan_module(image, read_functions(image)).reason == Reason.COLD_PART).sum() == 1
    command = recorder("--libcalls", "none", trace=tmp_path / "t.sgt")
    ended = run([*(word for word in command if word != "-q"), str(cold)])
    assert "4 calls of 3 functions" in ended.errors
    assert "1 function could not be hooked, because it has no caller to return to" in ended.errors
