"""The names of all functions of a module in order: what a rule means is found without looking at each of them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt

from shadowgraph.ops.selection import Rule, Selection

__all__ = ["NameIndex"]

_LITERAL = re.compile(r"[^*?\[]*")

_Rows = npt.NDArray[np.int64]


class NameIndex:
    """All names by which a user may mean a function of a module: ``names`` of its ``count`` rows, in any order."""

    def __init__(self, count: int, names: list[tuple[str, int]]) -> None:
        self._count = count
        names = sorted(names)
        self._names = [name for name, _ in names]
        self._rows: _Rows = np.array([row for _, row in names], np.int64)
        self._found: dict[str, _Rows] = {}

    def rows_of(self, rule: Rule) -> _Rows:
        """The rows of which any name matches a rule's pattern for functions; some may be there more than once."""
        if rule.function_text not in self._found:
            self._found[rule.function_text] = self._search(rule)
        return self._found[rule.function_text]

    def _search(self, rule: Rule) -> _Rows:
        pattern = rule.function_text
        literal = "" if pattern.startswith("re:") else _LITERAL.match(pattern)[0]  # type: ignore[index]
        low = bisect_left(self._names, literal)
        high = bisect_right(self._names, literal, low, key=lambda name: name[: len(literal)])
        if pattern == literal:
            return self._rows[low : bisect_left(self._names, pattern + "\0")]
        if pattern == literal + "*":
            return self._rows[low:high]
        matches = rule.function
        hits = [at for at in range(low, high) if matches(self._names[at])]
        return self._rows[np.array(hits, np.int64)]

    def wanted(self, selection: Selection, module: str, *, default: bool) -> npt.NDArray[np.bool_]:
        """bool[count]: which rows a selection wants, as :meth:`Selection.wants` would say of each."""
        found = np.full(self._count, default)
        for rule in selection.rules:
            rows = self.rows_of(rule) if rule.wants_module(module) else self._rows[:0]
            if len(rows):
                selection.matched.add(rule.text)
                found[rows] = rule.include
        return found
