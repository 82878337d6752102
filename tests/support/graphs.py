"""The expected graph of a test program (tests/programs/README.md), and how a recorded trace is held against it."""

from __future__ import annotations

import ast
import fnmatch
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.traces import Trace

__all__ = ["Graph", "GraphError", "differences", "read_graph"]

# Functions of the compiler's and libc's start-up objects in every program: nobody's business here.
_START_UP = [
    "_init",
    "_fini",
    "_start",
    "deregister_tm_clones",
    "register_tm_clones",
    "__do_global_dtors_aux",
    "_start_c",
    "frame_dummy",
    "atexit",
    "__libc_csu_*",
    "_GLOBAL__sub_*",
    "_sub_D_*",
    "_sub_I_*",
    "__static_initialization_and_destruction_0*",
    "__cxx_global_var_init*",
    "_dl_relocate_static_pie",
    "__clang_call_terminate",
    "sub_*",
    "asan.*",
    "tsan.*",
    "__cxx_global_array_dtor*",
    "call_weak_fn",
    "at_quick_exit",
    "__stack_chk_fail_local",
    "__cpu_indicator_init",
    "cpu_indicator_init",
    "get_available_features",
    "has_cpu_feature",
    "set_cpu_feature",
    "get_zhaoxin_cpu",
    "get_intel_cpu",
    "get_amd_cpu",
]

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class GraphError(Exception):
    """A .graph file says something that is not in its format."""


@dataclass
class Graph:
    """What a .graph file says; the README beside the programs explains each word."""

    path: Path
    rounds: int = 1
    build: list[str] = field(default_factory=list)
    variants: list[str] = field(default_factory=list)
    only: str = ""
    unless: list[str] = field(default_factory=list)
    macro_of_library: str = ""
    record: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    status: int = 0
    calls: dict[str, str] = field(default_factory=dict)
    nests: dict[tuple[str, str], str] = field(default_factory=dict)
    unwound: dict[str, str] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    any: list[str] = field(default_factory=list)
    any_unwound: list[str] = field(default_factory=list)
    any_open: list[str] = field(default_factory=list)
    may_refuse: list[str] = field(default_factory=list)
    missable: list[str] = field(default_factory=list)
    threads: str = ""
    processes: str = ""
    other_programs: bool = False

    @property
    def source(self) -> Path:
        """The program's source beside the graph."""
        return next(path for path in (self.path.with_suffix(".c"), self.path.with_suffix(".cpp")) if path.exists())

    def variables(self, output: Iterable[str], rounds: int) -> dict[str, int]:
        """The names that counts may use: N, and what the program printed as ``name=number``."""
        names = {"N": rounds}
        for line in output:
            name, equals, number = line.partition("=")
            if equals and name.isidentifier() and number.isdigit():
                names[name] = int(number)
        return names

    def output_differs(self, lines: list[str]) -> str:
        """How the program's standard output differs from the expected; "" where it does not."""
        if len(lines) == len(self.output) and all(map(fnmatch.fnmatchcase, lines, self.output)):
            return ""
        return f"output is {lines[:20]}, not {self.output}"


def read_graph(path: Path) -> Graph:
    """Read a .graph file. Raises GraphError with the line that is wrong."""
    graph = Graph(path)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        word, _, rest = text.partition(" ")
        try:
            _WORDS[word](graph, rest.strip())
        except (KeyError, ValueError) as error:
            raise GraphError(f"{path}:{number}: {line!r} is not understood ({error})") from None
    return graph


def _count(text: str) -> tuple[str, str]:
    """``name  expression`` as its two parts; names hold no blanks."""
    name, count = text.split(None, 1)
    return name, count


def _add_nest(graph: Graph, text: str) -> None:
    caller, callee = text.split(" > ", 1)
    callee, count = _count(callee)
    graph.nests[caller.strip(), callee] = count


def _add_count(into: str) -> Callable[[Graph, str], None]:
    def add(graph: Graph, text: str) -> None:
        name, count = _count(text)
        getattr(graph, into)[name] = count

    return add


def _append(into: str) -> Callable[[Graph, str], None]:
    return lambda graph, text: getattr(graph, into).append(text)


def _set(name: str, convert: Callable[[str], object] = str) -> Callable[[Graph, str], None]:
    return lambda graph, text: setattr(graph, name, convert(text))


_WORDS: dict[str, Callable[[Graph, str], None]] = {
    "rounds": _set("rounds", int),
    "build": _set("build", str.split),
    "variants": _set("variants", str.split),
    "only": _set("only"),
    "unless": _set("unless", str.split),
    "library": _set("macro_of_library"),
    "record": _set("record", str.split),
    "output": _append("output"),
    "exit": _set("status", int),
    "signal": _set("status", lambda text: -int(text)),
    "call": _add_count("calls"),
    "nest": _add_nest,
    "unwound": _add_count("unwound"),
    "open": _add_count("open"),
    "any": _append("any"),
    "any_unwound": _append("any_unwound"),
    "any_open": _append("any_open"),
    "may_refuse": _append("may_refuse"),
    "missable": _append("missable"),
    "threads": _set("threads"),
    "processes": _set("processes"),
    "other_programs": _set("other_programs", lambda text: True),
}


def evaluate(expression: str, names: dict[str, int]) -> int:
    """The value of a count: integers, names, + - * // % and parentheses."""

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.Expression):
            return value(node.body)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise GraphError(f"{expression!r} is no count")

    return value(ast.parse(expression, mode="eval"))


def matches(name: str, patterns: str | Iterable[str]) -> bool:
    """Whether a function's name is one of ``a|b*|c`` (or of several such texts)."""
    alternatives = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatch.fnmatchcase(name, part) for text in alternatives for part in text.split("|"))


def differences(
    graph: Graph, trace: Trace, names: dict[str, int], refused: Callable[[str], bool] = lambda name: False
) -> list[str]:
    """Everything in which a trace is not the expected graph, as sentences; empty where it is.

    ``names`` are the variables of the counts, ``refused`` tells of a function whether it was said to be unhookable.
    """
    wanted = {name: trace.select(partial(matches, patterns=name), own=graph.other_programs) for name in graph.calls}
    found: list[str] = []
    untraced = {
        name for name in graph.calls if name in graph.may_refuse and not trace.count(wanted[name]) and refused(name)
    }
    found += _count_differences(graph, trace, names, wanted, untraced)
    found += _kind_differences(graph, trace, names, wanted)
    if not untraced:
        found += _nest_differences(graph, trace, names, wanted)
    known = [*graph.calls, *graph.any, *_START_UP]
    strangers = sorted(name for name in trace.own_names_called() if not matches(name, known))
    if strangers:
        found.append(f"functions that should not be there: {strangers[:10]}")
    for what, expression, actual in (
        ("threads", graph.threads, trace.threads),
        ("processes", graph.processes, trace.processes),
    ):
        if expression and evaluate(expression, names) != actual:
            found.append(f"{actual} {what}, not {evaluate(expression, names)}")
    if trace.dropped or (trace.missed and not graph.missable):
        found.append(f"{trace.missed} calls missed and {trace.dropped} dropped")
    return found


def _count_differences(
    graph: Graph, trace: Trace, names: dict[str, int], wanted: dict[str, set[int]], untraced: set[str]
) -> list[str]:
    found = []
    for name, expression in graph.calls.items():
        if name in untraced:
            continue
        actual = trace.count(wanted[name])
        if expression == "~":
            if actual == 0:
                found.append(f"{name} was never called")
            continue
        expected = evaluate(expression, names)
        missed = trace.missed if name in graph.missable else 0
        if not actual <= expected <= actual + missed:
            found.append(f"{name} was called {actual} times (and {missed} missed), not {expected}")
    return found


def _kind_differences(graph: Graph, trace: Trace, names: dict[str, int], wanted: dict[str, set[int]]) -> list[str]:
    found = []
    for kind, expected_of, free in (
        ("unwound", graph.unwound, graph.any_unwound),
        ("open", graph.open, graph.any_open),
    ):
        for name, functions in wanted.items():
            if matches(name, free):
                continue
            expected = evaluate(expected_of.get(name, "0"), names)
            actual = trace.count(functions, kind)
            if actual != expected:
                found.append(f"{actual} calls of {name} are {kind}, not {expected}")
    return found


def _nest_differences(graph: Graph, trace: Trace, names: dict[str, int], wanted: dict[str, set[int]]) -> list[str]:
    if not graph.nests:
        return []
    mentioned = set().union(*wanted.values())
    edges = trace.edges(mentioned)
    found, known = [], 0
    for (caller, callee), expression in graph.nests.items():
        expected = evaluate(expression, names)
        actual = sum(
            count for (parent, child), count in edges.items() if parent in wanted[caller] and child in wanted[callee]
        )
        known += actual
        if actual != expected:
            found.append(f"{caller} > {callee}: {actual} times, not {expected}")
    total = sum(count for (parent, _), count in edges.items() if parent is not None)
    if total != known and not found:
        others = [
            f"{trace.names[parent]} > {trace.names[child]}"
            for (parent, child) in edges
            if parent is not None and not any(parent in wanted[a] and child in wanted[b] for a, b in graph.nests)
        ]
        found.append(f"nesting that should not be there: {others[:10]}")
    return found
