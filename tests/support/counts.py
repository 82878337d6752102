"""How often each function of a trace was called, and what was lost: read from its Parquet files alone."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import parquet

from tests.support.traces import KINDS

__all__ = ["Counts", "read_counts"]


@dataclass(frozen=True)
class Counts:
    """Calls by name as it is in the file; ``open`` and ``unwound`` are some of them. Losses are sums over threads."""

    calls: Counter[str]
    modules: dict[str, str]
    open: Counter[str]
    unwound: Counter[str]
    tail: Counter[str]
    threads: int
    processes: list[dict[str, Any]]
    missed: int
    dropped: int
    filtered: int
    manifest: dict[str, Any]
    values: dict[str, list[tuple[str | None, str | None]]]

    @property
    def total(self) -> int:
        """All calls that were made of traced functions, as far as the recorder knows."""
        return self.calls.total() + self.missed + self.dropped + self.filtered


def read_counts(folder: Path) -> Counts:
    """Read a trace that is complete or recovered."""
    functions = parquet.read_table(folder / "functions.parquet").to_pydict()
    names = dict(zip(functions["function"], functions["name"], strict=True))
    calls = parquet.read_table(folder / "calls.parquet")
    by_kind: dict[int, Counter[str]] = {kind: Counter() for kind in KINDS.values()}
    values: dict[str, list[tuple[str | None, str | None]]] = {}
    captured = "arguments" in calls.column_names
    nothing = [None] * len(calls)
    columns = [calls[name].to_pylist() for name in ("function", "kind")]
    columns += [calls[name].to_pylist() if captured else nothing for name in ("arguments", "result")]
    for function, kind, arguments, result in zip(*columns, strict=True):
        by_kind[kind][names[function]] += 1
        if captured and (arguments is not None or result is not None):
            values.setdefault(names[function], []).append((arguments, result))
    threads = parquet.read_table(folder / "threads.parquet").to_pydict()
    processes = parquet.read_table(folder / "processes.parquet").to_pylist()
    return Counts(
        calls=sum(by_kind.values(), Counter()),
        modules=dict(zip(functions["name"], functions["module"], strict=True)),
        open=by_kind[KINDS["open"]],
        unwound=by_kind[KINDS["unwound"]],
        tail=by_kind[KINDS["tail"]],
        threads=len(threads["thread"]),
        processes=processes,
        missed=sum(threads["missed"]) + sum(row["missed"] for row in processes),
        dropped=sum(threads["dropped"]),
        filtered=sum(threads["filtered"]),
        manifest=json.loads((folder / "manifest.json").read_text()),
        values=values,
    )
