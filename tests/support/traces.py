"""A recorded trace as the tests see it: read straight from its Parquet files, not with the code that is under test."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyarrow import parquet

__all__ = ["KINDS", "Trace", "names_by_address", "plain_names", "read_trace"]

KINDS = {"returned": 0, "unwound": 1, "tail": 2, "open": 3}
_CLONE = re.compile(r"(\.(constprop|isra|part|lto_priv|localalias)\.\d+|@@?[\w.]+)+$")


@dataclass
class Trace:
    """The calls of a trace, one row each, sorted by thread, start and depth."""

    names: dict[int, str]  # plain name of each function id
    modules: dict[int, str]
    own_module: str  # the module of the program that was recorded
    thread: np.ndarray
    function: np.ndarray
    depth: np.ndarray
    kind: np.ndarray
    start: np.ndarray
    duration: np.ndarray
    threads: int
    processes: int
    missed: int
    dropped: int

    def select(self, accepts: Callable[[str], bool], *, own: bool = False) -> set[int]:
        """Function ids whose plain name is accepted; with ``own`` those of the program itself alone."""
        return {number for number, name in self.names.items() if accepts(name) and (not own or self._is_own(number))}

    def _is_own(self, number: int) -> bool:
        return self.modules[number] == self.own_module

    def count(self, functions: set[int], kind: str = "") -> int:
        """How many calls of these functions there are, of one kind or of all."""
        here = np.isin(self.function, list(functions))
        return int((here & (self.kind == KINDS[kind])).sum() if kind else here.sum())

    def own_names_called(self) -> set[str]:
        """Names of the program's own functions that have calls."""
        return {self.names[number] for number in np.unique(self.function).tolist() if self._is_own(number)}

    def parents(self) -> np.ndarray:
        """For each row the row of its caller, or -1: the last row before it in its thread that is one level up."""
        parent = np.full(len(self.depth), -1, dtype=np.int64)
        rows = np.arange(len(self.depth))
        outer: np.ndarray = rows[:0]
        for level in range(int(self.depth.max(initial=0)) + 1):
            inner = rows[self.depth == level]
            if len(outer) and len(inner):
                at = np.searchsorted(outer, inner) - 1
                candidate = np.where(at >= 0, outer[np.maximum(at, 0)], -1)
                same = (candidate >= 0) & (self.thread[np.maximum(candidate, 0)] == self.thread[inner])
                parent[inner] = np.where(same, candidate, -1)
            outer = inner
        return parent

    def edges(self, mentioned: set[int]) -> dict[tuple[int | None, int], int]:
        """How often each mentioned function was called within the nearest mentioned one above (None: in none)."""
        parent = self.parents()
        keep = np.isin(self.function, list(mentioned))
        hidden = (parent >= 0) & ~keep[np.maximum(parent, 0)]
        while hidden.any():
            parent[hidden] = parent[parent[hidden]]
            hidden = (parent >= 0) & ~keep[np.maximum(parent, 0)]
        caller = np.where(parent >= 0, self.function[np.maximum(parent, 0)].astype(np.int64), -1)[keep]
        pairs, counts = np.unique(np.stack([caller, self.function[keep].astype(np.int64)]), axis=1, return_counts=True)
        return {
            (None if above < 0 else above, below): count
            for above, below, count in zip(pairs[0].tolist(), pairs[1].tolist(), counts.tolist(), strict=True)
        }


def read_trace(folder: Path, program: Path) -> Trace:
    """Read a complete trace of ``program``."""
    functions = parquet.read_table(folder / "functions.parquet").to_pydict()
    threads = parquet.read_table(folder / "threads.parquet").to_pydict()
    processes = parquet.read_table(folder / "processes.parquet").to_pydict()
    calls = parquet.read_table(
        folder / "calls.parquet", columns=["thread", "function", "start_ns", "duration_ns", "depth", "kind"]
    )
    column = {name: calls[name].to_numpy() for name in calls.column_names}
    order = np.lexsort((column["depth"], column["start_ns"], column["thread"]))
    used = np.unique(column["function"]).tolist()
    row_of = {number: row for row, number in enumerate(functions["function"])}
    real = names_by_address(program)
    shown = [functions["name"][row_of[number]] for number in used]
    for place, number in enumerate(used):
        if functions["module_path"][row_of[number]] == str(program.resolve()):
            shown[place] = real.get(functions["address"][row_of[number]], shown[place])
    plain = plain_names(shown)
    assert json.loads((folder / "manifest.json").read_text())["state"] == "complete"
    return Trace(
        names=dict(zip(used, plain, strict=True)),
        modules={number: functions["module_path"][row_of[number]] for number in used},
        own_module=str(program.resolve()),
        thread=column["thread"][order],
        function=column["function"][order],
        depth=column["depth"][order],
        kind=column["kind"][order],
        start=column["start_ns"][order],
        duration=column["duration_ns"][order],
        threads=len(threads["thread"]),
        processes=len(processes["process"]),
        missed=sum(threads["missed"]) + sum(processes["missed"]),
        dropped=sum(threads["dropped"]),
    )


def names_by_address(program: Path) -> dict[int, str]:
    """Function names of a stripped program, from the copy with symbols that lies beside it; else nothing."""
    whole = program.with_name(program.name + ".symbols")
    if not whole.exists():
        return {}
    lines = subprocess.run(
        ["nm", "--defined-only", whole], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    fields = [line.split() for line in lines]
    return {int(address, 16): name for address, kind, name in fields if kind in "tTwWi"}


def plain_names(names: list[str]) -> list[str]:
    """Names as a programmer writes them: demangled, without parameters, without the suffixes of compilers' clones."""
    if not names:
        return []
    cut = [_CLONE.sub("", name) for name in names]
    shown = subprocess.run(["c++filt", "-p"], input="\n".join(cut), capture_output=True, text=True, check=True).stdout
    return shown.split("\n")[: len(names)]
