"""The names of all functions of a module in order: what a rule means is found without looking at each of them."""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shadowgraph.ops.name_literals import EDGE, literals_of
from shadowgraph.ops.selection import Rule, Selection

__all__ = ["NameIndex"]

_LITERAL = re.compile(r"[^*?\[]*")

_FEW = 100  # names that are looked at one by one in no time
_TRIED = 4  # sets of strings that are counted

_Rows = npt.NDArray[np.int64]


class NameIndex:
    """All names by which a user may mean a function of a module: ``names`` of its ``count`` rows, in any order."""

    def __init__(self, count: int, names: list[tuple[str, int]]) -> None:
        self._count = count
        names = sorted(names)
        self._names = [name for name, _ in names]
        self._rows: _Rows = np.array([row for _, row in names], np.int64)
        self._found: dict[str, _Rows] = {}

    @cached_property
    def _text(self) -> str:
        """All names, one behind the other, an edge around each."""
        return EDGE + EDGE.join(self._names) + EDGE

    @cached_property
    def _small(self) -> str:
        """The same in small letters; nothing if not all of it is ASCII."""
        return self._text.lower() if self._text.isascii() else ""

    @cached_property
    def _has_line_ends(self) -> bool:
        return "\n" in self._text

    @cached_property
    def _begins(self) -> list[int]:
        """Where each name begins in the text, and where one more would."""
        lengths = np.fromiter((len(name) + 1 for name in self._names), np.int64, len(self._names))
        return [1, *(1 + np.cumsum(lengths)).tolist()]

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
        hits = [at for at in self._candidates(pattern, low, high) if matches(self._names[at])]
        return self._rows[np.array(hits, np.int64)]

    def _candidates(self, pattern: str, low: int, high: int) -> Iterable[int]:
        """Those of the names from ``low`` to ``high`` that may match."""
        if high - low <= _FEW or self._has_line_ends:
            return range(low, high)
        expression = pattern[3:] if pattern.startswith("re:") else fnmatch.translate(pattern)
        sets, ignores_case = literals_of(expression)
        text = self._small if ignores_case else self._text
        if not sets or not text:
            return range(low, high)
        longest = sorted(sets, key=lambda literals: -min(map(len, literals)))[:_TRIED]
        rarest = longest[0] if len(longest) == 1 else min(longest, key=lambda literals: _count_of(literals, text))
        equal = range(bisect_left(self._names, pattern), bisect_right(self._names, pattern))  # see selection.py
        return sorted(self._containing(rarest, text, low, high).union(equal))

    def _containing(self, literals: Iterable[str], text: str, low: int, high: int) -> set[int]:
        found, begins = set(), self._begins
        for literal in literals:
            at = text.find(literal, begins[low] - 1, begins[high])
            while at >= 0:
                name = bisect_right(begins, at + literal.startswith(EDGE)) - 1
                found.add(name)
                at = text.find(literal, begins[name + 1] - 1, begins[high])
        return found

    def wanted(self, selection: Selection, module: str, *, default: bool) -> npt.NDArray[np.bool_]:
        """bool[count]: which rows a selection wants, as :meth:`Selection.wants` would say of each."""
        found = np.full(self._count, default)
        for rule in selection.rules:
            rows = self.rows_of(rule) if rule.wants_module(module) else self._rows[:0]
            if len(rows):
                selection.matched.add(rule.text)
                found[rows] = rule.include
        return found


def _count_of(literals: Iterable[str], text: str) -> int:
    return sum(map(text.count, literals))
