"""The slow and obvious twins of the native analyses: what they are held against."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shadowgraph.agent import layout
from tests.support.synthetic import Call

DEEPEST = 65535


def callers(calls: Sequence[Call]) -> list[int | None]:
    """The index of each call's caller, by the rule of native/columns/nesting.h: the newest one in flight of the next
    smaller depth that has one."""
    result: list[int | None] = []
    for at, call in enumerate(calls):
        in_flight = [
            other
            for other in range(at)
            if calls[other].end > call.start or (calls[other].end == call.start and call.duration == 0)
        ]
        above = [n for n in in_flight if calls[n].depth < call.depth or calls[n].depth == call.depth == DEEPEST]
        result.append(max(above, key=lambda n: (calls[n].depth, n)) if above else None)
    return result


def union(spans: Iterable[tuple[int, int]]) -> int:
    """The time covered by at least one span."""
    total, reached = 0, -(1 << 62)
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def quantile(values: Sequence[int], share: float) -> int:
    """The nearest-rank quantile."""
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


@dataclass
class SlowRow:
    durations: list[int] = field(default_factory=list)
    spans: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    inside: int = 0
    open: int = 0
    unwound: int = 0

    @property
    def total(self) -> int:
        return sum(union(spans) for spans in self.spans.values())

    @property
    def self(self) -> int:
        return sum(self.durations) - self.inside


def profile(threads: dict[int, Sequence[Call]], key_of: dict[int, int] | None = None) -> dict[int, SlowRow]:
    """A profile by function, or by what ``key_of`` says of functions."""
    rows: dict[int, SlowRow] = defaultdict(SlowRow)

    def key(call: Call) -> int:
        return call.function if key_of is None else key_of[call.function]

    for thread, calls in threads.items():
        for call, caller in zip(calls, callers(calls), strict=True):
            row = rows[key(call)]
            row.durations.append(call.duration)
            row.spans[thread].append((call.start, call.end))
            row.open += call.kind == layout.KIND_OPEN
            row.unwound += call.kind == layout.KIND_UNWOUND
            if caller is not None:
                rows[key(calls[caller])].inside += min(call.end, calls[caller].end) - call.start
    return rows


def tree(threads: dict[int, Sequence[Call]]) -> dict[tuple[int, ...], tuple[int, int, int]]:
    """Calls, total and self time of each path of functions; total is the time in which any call of it was in flight."""
    nodes: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for calls in threads.values():
        spans: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for (call, caller), path in zip(zip(calls, callers(calls), strict=True), paths_of(calls), strict=True):
            spans[path].append((call.start, call.end))
            nodes[path][0] += 1
            nodes[path][2] += call.duration
            if caller is not None:
                nodes[path[:-1]][2] -= min(call.end, calls[caller].end) - call.start
        for path, times in spans.items():
            nodes[path][1] += union(times)
    return {path: (calls, total, own) for path, (calls, total, own) in nodes.items()}


def paths_of(calls: Sequence[Call]) -> list[tuple[int, ...]]:
    """The functions that led to each call, the outermost first, its own last."""
    paths: list[tuple[int, ...]] = []
    for call, caller in zip(calls, callers(calls), strict=True):
        paths.append((*(paths[caller] if caller is not None else ()), call.function))
    return paths


def callers_of(threads: dict[int, Sequence[Call]], function: int, depth: int) -> dict[tuple[int, ...], tuple[int, int]]:
    """Calls and total time of a function by the way that led to it: its caller, that one's caller, and so on."""
    nodes: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0])
    for calls in threads.values():
        spans: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for call, path in zip(calls, paths_of(calls), strict=True):
            if call.function != function:
                continue
            way = tuple(reversed(path[:-1]))[:depth]
            for length in range(len(way) + 1):
                nodes[way[:length]][0] += 1
                spans[way[:length]].append((call.start, call.end))
        for key, times in spans.items():
            nodes[key][1] += union(times)
    return {way: (calls, total) for way, (calls, total) in nodes.items()}
