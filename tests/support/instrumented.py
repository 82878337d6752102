"""An exact log of a program's calls, by gcc's -finstrument-functions, to hold a trace's nesting against."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.build import compile_files, scratch_folder
from tests.support.recording import plain_run
from tests.support.traces import Trace, plain_names

__all__ = ["Instrumented", "instrument", "logged_calls", "sequence_differences", "traced_calls"]

_RUNTIME = Path(__file__).resolve().parent / "call_log.c"

Calls = list[tuple[int, str]]
"""The calls of one thread in the order of their entries: depth, counted from 0, and name."""


@dataclass(frozen=True)
class Instrumented:
    """The same source twice: with the log, and without, to be traced."""

    logging: Path
    plain: Path
    log: Path


def instrument(source: Path, flags: tuple[str, ...]) -> Instrumented:
    """Build a program with and without -finstrument-functions; nothing is inlined in either."""
    folder = Path(tempfile.mkdtemp(prefix=f"{source.stem}-instrumented-", dir=scratch_folder()))
    log, logging, plain = folder / "calls.log", folder / f"{source.stem}.logging", folder / source.stem
    common = ("-O2", "-fno-inline", "-fno-ipa-cp", "-fno-ipa-sra", "-fno-partial-inlining", "-fno-ipa-icf", *flags)
    compile_files("gcc", [source], plain, common)
    runtime = folder / "call_log.o"
    subprocess.run(
        ["gcc", "-O2", "-c", _RUNTIME, f'-DCALL_LOG_PATH="{log}"', "-Wno-pedantic", "-o", runtime], check=True
    )
    compile_files("gcc", [source], logging, (*common, "-finstrument-functions", str(runtime)))
    return Instrumented(logging, plain, log)


def logged_calls(program: Instrumented, arguments: list[str]) -> list[Calls]:
    """Run the logging program; the calls of each thread, the threads in the order of their first calls.

    Functions that the plain program does not have (they are inlined wherever they are called) are left out. A function
    that was left by longjmp has no exit in the log; the depth is put right by the exit of an outer one.
    """
    outcome = plain_run([str(program.logging), *arguments])
    words = np.fromfile(program.log, dtype="<u8")
    names = _symbols(program.logging, int(words[0]))
    assert outcome.status < 128, outcome
    real = set(_symbols(program.plain, 0).values())
    threads: dict[int, Calls] = {}
    stacks: dict[int, list[int]] = {}
    for word in words[1:].tolist():
        thread, function, entered = word >> 48, word >> 1 & (1 << 47) - 1, word & 1
        calls, stack = threads.setdefault(thread, []), stacks.setdefault(thread, [])
        if names[function] not in real:
            continue
        if entered:
            calls.append((len(stack), names[function]))
            stack.append(function)
            continue
        while stack.pop() != function:
            continue
    return list(threads.values())


def _symbols(program: Path, main: int) -> dict[int, str]:
    """Plain names of the program's functions by their addresses in a run in which main was at ``main``."""
    lines = subprocess.run(["nm", "--defined-only", program], capture_output=True, text=True, check=True).stdout
    fields = [line.split() for line in lines.splitlines()]
    rows = [(int(address, 16), name) for address, kind, name in fields if kind in "tTwW"]
    base = main - next(address for address, name in rows if name == "main")
    plain = plain_names([name for _, name in rows])
    return {address + base: name for (address, _), name in zip(rows, plain, strict=True)}


def traced_calls(trace: Trace, names: set[str]) -> list[Calls]:
    """The same from a trace, of functions with these names alone; depths are counted among them."""
    wanted = trace.select(names.__contains__, own=True)
    keep = np.isin(trace.function, list(wanted))
    parents = trace.parents()
    depth = np.full(len(keep), -1)
    threads: dict[int, Calls] = {}
    for row in range(len(keep)):  # callers come before their callees
        parent = parents[row]
        above = depth[parent] if parent >= 0 else -1
        depth[row] = above + bool(keep[row])
        if keep[row]:
            calls = threads.setdefault(int(trace.thread[row]), [])
            calls.append((int(depth[row]), trace.names[int(trace.function[row])]))
    return list(threads.values())


def sequence_differences(expected: list[Calls], actual: list[Calls]) -> str:
    """Where the first thread's calls differ first; "" where all threads have the same. Threads match by content."""
    if sorted(expected) == sorted(actual):
        return ""
    if len(expected) != len(actual):
        return f"{len(actual)} threads made calls, not {len(expected)}"
    for right, found in zip(sorted(expected), sorted(actual), strict=True):
        if right == found:
            continue
        at = next(
            (k for k, (a, b) in enumerate(zip(right, found, strict=False)) if a != b), min(len(right), len(found))
        )
        return f"call {at} is {found[at : at + 3]}, not {right[at : at + 3]} ({len(found)} calls, not {len(right)})"
    return ""
