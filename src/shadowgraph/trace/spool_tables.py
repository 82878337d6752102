"""What the JSON chunks of a spool say about functions, processes and threads, as rows of tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from shadowgraph.trace.clock import Clock
from shadowgraph.trace.spool_reader import Spool
from shadowgraph.trace.tables import LARGEST_GUESS

__all__ = ["dropped_by_others", "function_rows", "merge_by", "process_rows", "thread_rows"]

Rows = dict[str, list[Any]]


def function_rows(spool: Spool, calls: np.ndarray[Any, Any]) -> Rows:
    """All functions by id; one that was called but never described gets a name that says so."""
    modules = _modules(spool)
    rows: dict[int, tuple[Any, ...]] = {}
    for content in spool.contents("functions"):
        count = len(content["id"])
        files, lines = content.get("file", [None] * count), content.get("line", [None] * count)
        columns = (content["id"], content["name"], content["module"], content["address"], content["size"], files, lines)
        for function, *rest in zip(*columns, strict=True):
            rows[function] = tuple(rest)
    for function in np.flatnonzero(calls[:LARGEST_GUESS]).tolist():
        rows.setdefault(function, (f"function_{function}", None, 0, 0, None, None))
    ids = sorted(rows)
    names, module_ids, addresses, sizes, files, lines = (
        zip(*map(rows.__getitem__, ids), strict=True) if ids else [()] * 6
    )
    return {
        "function": ids,
        "name": list(names),
        "module": [modules.get(module, ("?", "?"))[0] for module in module_ids],
        "module_path": [modules.get(module, ("?", "?"))[1] for module in module_ids],
        "address": list(addresses),
        "size": list(sizes),
        "file": list(files),
        "line": list(lines),
        "calls": calls[ids].tolist() if ids else [],
    }


def _modules(spool: Spool) -> dict[int, tuple[str, str]]:
    """Short name and path of each module by id."""
    found = {}
    for content in spool.contents("modules"):
        for row in content:
            path = row["path"]
            found[row["module"]] = (row.get("name") or path.rsplit("/", 1)[-1], path)
    return found


def process_rows(spool: Spool, clock: Clock) -> Rows:
    """All processes by index."""
    merged = merge_by(spool, "processes", "process")
    missed = {row["process"]: row.get("missed", 0) for row in _counters(spool) if row.get("thread") is None}
    ids = sorted(merged.keys() | set(spool.thread_process.values()) | missed.keys())
    rows = [merged.get(process, {}) for process in ids]
    return {
        "process": ids,
        "pid": [row.get("pid", 0) for row in rows],
        "parent_pid": [row.get("parent", 0) for row in rows],
        "command": [row.get("command") or "" for row in rows],
        "start_ns": [_time(clock, row.get("start")) for row in rows],
        "end_ns": [_time(clock, row.get("end")) for row in rows],
        "exit_status": [row.get("status") for row in rows],
        "missed": [missed.get(process, 0) for process in ids],
    }


def thread_rows(
    spool: Spool, clock: Clock, first: dict[int, int], count: dict[int, int], start: dict[int, int | None]
) -> Rows:
    """All threads by index, with what was lost of each and where its calls lie."""
    merged = merge_by(spool, "threads", "thread")
    lost = {row["thread"]: row for row in _counters(spool) if row.get("thread") is not None}
    ids = sorted(merged.keys() | lost.keys() | first.keys())
    rows = [{"process": spool.thread_process.get(thread, 0)} | merged.get(thread, {}) for thread in ids]
    losses = [lost.get(thread, {}) for thread in ids]
    return {
        "thread": ids,
        "process": [row["process"] for row in rows],
        "pid": [row.get("pid", 0) for row in rows],
        "tid": [row.get("tid", 0) for row in rows],
        "name": [row.get("name") or "" for row in rows],
        "start_ns": [_time(clock, row.get("start")) for row in rows],
        "end_ns": [_time(clock, row.get("end")) for row in rows],
        "missed": [loss.get("missed", 0) for loss in losses],
        "dropped": [loss.get("dropped", 0) for loss in losses],
        "filtered": [loss.get("filtered", 0) for loss in losses],
        "first_row": [first.get(thread, 0) for thread in ids],
        "calls": [count.get(thread, 0) for thread in ids],
        "first_start_ns": [None if (at := start.get(thread)) is None else clock.nanoseconds(at) for thread in ids],
    }


def dropped_by_others(spool: Spool) -> int:
    """Calls that were dropped by threads without a row of their own."""
    last = {row["process"]: row.get("dropped", 0) for row in _counters(spool) if row.get("thread") is None}
    return sum(last.values())


def merge_by(spool: Spool, kind: str, key: str) -> dict[int, dict[str, Any]]:
    """Updates of the same thing put together; what comes later wins."""
    merged: dict[int, dict[str, Any]] = {}
    for content in spool.contents(kind):
        for row in content if isinstance(content, list) else [content]:
            known = {name: value for name, value in row.items() if value is not None}
            merged[row[key]] = merged.get(row[key], {}) | known
    return merged


def _counters(spool: Spool) -> list[dict[str, Any]]:
    """All counter rows in order: they are totals, so that the last one of a thread counts."""
    return [
        row for content in spool.contents("counters") for row in (content if isinstance(content, list) else [content])
    ]


def _time(clock: Clock, ticks: int | None) -> int | None:
    """Nanoseconds since the start of the trace; a tick of 0 means that nobody noted it."""
    return None if not ticks else clock.nanoseconds(int(ticks))
