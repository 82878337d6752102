"""`shadowgraph graph`: the merged call tree, and one function's callers and callees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from shadowgraph.analysis.subtree import callees_of, callers_of
from shadowgraph.analysis.tree import CallTree
from shadowgraph.trace.reader import Trace
from shadowgraph.view.loss import loss_lines
from shadowgraph.view.names import Names
from shadowgraph.view.table import cut
from shadowgraph.view.terminal import Output
from shadowgraph.view.units import count_of, format_count, format_share, format_time

__all__ = ["write_function", "write_tree"]

_MOST_NAMES = 5

Nodes = np.ndarray[Any, Any]


def write_tree(output: Output, trace: Trace, names: Names, tree: CallTree, *, depth: int, least: float) -> None:
    """The whole tree. ``depth`` levels; ``least`` is the share of all time below which a node is left out."""
    roots = len(tree.processes)

    def label(number: int) -> str:
        if number < roots:
            return f"process {names.process_label(tree.processes[number])}"
        return _label(names, tree.nodes[number])

    drawing = _Drawing(tree.nodes, label, depth + (roots > 1), least, float(tree.nodes["total"][:roots].sum()))
    _write(output, drawing, range(roots) if roots > 1 else drawing.children(0))
    _write_end(output, trace, [drawing])


def write_function(
    output: Output, trace: Trace, names: Names, tree: CallTree, functions: list[int], *, depth: int, least: float
) -> None:
    """Who calls some functions, and what they call."""
    more = f" and {len(functions) - _MOST_NAMES:,} more" if len(functions) > _MOST_NAMES else ""
    title = ", ".join(names.label(function, line=False) for function in functions[:_MOST_NAMES]) + more
    callers, callees = callers_of(tree.nodes, functions, depth), callees_of(tree.nodes, functions)
    drawings = []
    for heading, nodes in ((f"Who calls {title}", callers), (f"What {title} calls", callees)):
        whole = float(nodes["total"][0])

        def label(number: int, nodes: Nodes = nodes) -> str:
            return title if number == 0 else _label(names, nodes[number])

        drawings.append(_Drawing(nodes, label, depth, least, whole, own_time=nodes is callees))
        output.line(output.bold(heading))
        _write(output, drawings[-1], [0])
        output.line()
    _write_end(output, trace, drawings)


class _Drawing:
    """A tree of nodes (parents before children, a root its own parent) as lines."""

    def __init__(
        self,
        nodes: Nodes,
        label: Callable[[int], str],
        depth: int,
        least: float,
        whole: float,
        *,
        own_time: bool = True,
    ) -> None:
        self.nodes, self.whole, self.own_time = nodes, whole, own_time
        self.hidden = self.too_deep = 0
        self._label, self._depth, self._least = label, depth, least * whole
        numbers = np.arange(len(nodes))
        below = numbers[nodes["parent"] != numbers]
        order = np.lexsort((-nodes["total"][below], nodes["parent"][below]))
        self._below = below[order]
        parents = nodes["parent"][self._below]
        self._first = np.searchsorted(parents, numbers, "left")
        self._last = np.searchsorted(parents, numbers, "right")

    def children(self, number: int) -> list[int]:
        """The children of a node, the longest first."""
        return self._below[self._first[number] : self._last[number]].tolist()  # type: ignore[no-any-return]

    def lines(self, tops: Any) -> Iterator[tuple[int, str]]:
        """(node, its name with branches before it) in the order in which they are drawn."""
        stack = [(number, "", "", 1) for number in reversed(self._shown(list(tops)))]
        while stack:
            number, before, below, level = stack.pop()
            yield number, before + self._label(number)
            children = self.children(number)
            if level >= self._depth:
                self.too_deep += bool(children)
                continue
            shown = self._shown(children)
            for index in range(len(shown) - 1, -1, -1):
                branch, under = ("└─ ", "   ") if index == len(shown) - 1 else ("├─ ", "│  ")
                stack.append((shown[index], below + branch, below + under, level + 1))

    def _shown(self, numbers: list[int]) -> list[int]:
        """Those that are long enough to be shown."""
        total = self.nodes["total"]
        kept = [number for number in numbers if total[number] >= self._least]
        self.hidden += len(numbers) - len(kept)
        return kept


def _write(output: Output, drawing: _Drawing, tops: Any) -> None:
    """A drawing with its numbers to the left."""
    nodes = drawing.nodes
    width = max(len("Calls"), len(format_count(int(nodes["calls"].max(initial=0)))))
    titles = [f"{'Total':>10}", f"{'%':>6}", *([f"{'Self':>10}"] if drawing.own_time else []), f"{'Calls':>{width}}"]
    output.line(output.bold("  ".join([*titles, "Function"])))
    for number, name in drawing.lines(tops):
        calls, total, own, in_flight, unwound = nodes[number].item()[:5]
        cells = [f"{format_time(total):>10}", f"{format_share(total, drawing.whole):>6}"]
        cells += [f"{format_time(max(own, 0)):>10}"] if drawing.own_time else []
        cells.append(f"{format_count(calls):>{width}}")
        notes = [
            f"{format_count(count)} {what}" for count, what in ((in_flight, "open"), (unwound, "unwound")) if count
        ]
        text = name + (f" ({', '.join(notes)})" if notes else "")
        numbers = "  ".join(cells) + "  "
        room = None if output.width is None else max(output.width - len(numbers), 24)
        output.line(numbers + cut(text, room))


def _write_end(output: Output, trace: Trace, drawings: list[_Drawing]) -> None:
    """What is not in the drawings."""
    hidden = sum(drawing.hidden for drawing in drawings)
    if hidden:
        output.line(f"(left out: {count_of(hidden, 'branch')} that took less time; --min 0 shows all)")
    if any(drawing.too_deep for drawing in drawings):
        output.line("(deeper levels are left out; --depth N shows N levels)")
    for line in loss_lines(trace):
        output.line(line)


def _label(names: Names, node: Any) -> str:
    return names.label(int(node["function"]))
