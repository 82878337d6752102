"""The names of all functions of a module in order: what a rule means is found without looking at each of them."""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import compress
from operator import methodcaller

import numpy as np
import numpy.typing as npt

from shadowgraph.agent.number_sets import distinct
from shadowgraph.ops.name_literals import EDGE, literals_of
from shadowgraph.ops.selection import Rule, Selection

__all__ = ["NameIndex"]

_LITERAL = re.compile(r"[^*?\[]*")
# Patterns that ask for a string alone: anywhere in a name, or at its beginning, or its end.
_STRING_GLOB = re.compile(r"(?P<open>\*?)(?P<string>[^*?\[\0]+)(?P<close>\*?)")
_STRING_EXPRESSION = re.compile(r"re:(?P<begins>\^?)(?P<string>[\w:~<> ,&=-]+)(?P<ends>\$?)", re.ASCII)

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
    def _letters(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self._text.encode(), np.uint8)

    @cached_property
    def _small_letters(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self._small.encode(), np.uint8)

    @cached_property
    def _has_line_ends(self) -> bool:
        return "\n" in self._text

    @cached_property
    def _begins(self) -> list[int]:
        """Where each name begins in the text, and where one more would."""
        lengths = np.fromiter((len(name) + 1 for name in self._names), np.int64, len(self._names))
        return [1, *(1 + np.cumsum(lengths)).tolist()]

    @cached_property
    def _begins_array(self) -> _Rows:
        return np.array(self._begins, np.int64)

    def rows_of(self, rule: Rule) -> _Rows:
        """The rows of which any name matches a rule's pattern for functions; some may be there more than once."""
        if rule.function_text not in self._found:
            self._found[rule.function_text] = self._search(rule)
        return self._found[rule.function_text]

    def _search(self, rule: Rule) -> _Rows:
        pattern = rule.function_text
        literal = "" if pattern.startswith("re:") else _LITERAL.match(pattern)[0]  # type: ignore[index]
        low, high = self._beginning(literal)
        if pattern == literal:
            return self._rows[low : bisect_left(self._names, pattern + "\0")]
        if pattern == literal + "*":
            return self._rows[low:high]
        string = self._string_of(pattern)
        if string.startswith(EDGE) and not string.endswith(EDGE):
            return self._rows[slice(*self._beginning(string[1:]))]
        if string:
            return self._rows[self._holding(string, 0, len(self._names))]
        names = self._names
        candidates = self._candidates(pattern, low, high)
        hits = compress(candidates, map(rule.function, map(names.__getitem__, candidates)))
        return self._rows[np.fromiter(hits, np.int64)]

    def _beginning(self, string: str) -> tuple[int, int]:
        """From where to where the names begin with a string."""
        low = bisect_left(self._names, string)
        return low, bisect_right(self._names, string, low, key=lambda name: name[: len(string)])

    def _string_of(self, pattern: str) -> str:
        """The string that a name must hold to match, with its edges, if it need not do more; else ""."""
        glob = _STRING_GLOB.fullmatch(pattern)
        if glob is not None and not pattern.startswith("re:"):
            begins, ends = not glob["open"], not glob["close"]
            return EDGE * begins + glob["string"] + EDGE * ends
        expression = _STRING_EXPRESSION.fullmatch(pattern)
        if expression is None or self._has_line_ends:
            return ""
        return EDGE * bool(expression["begins"]) + expression["string"] + EDGE * bool(expression["ends"])

    def _candidates(self, pattern: str, low: int, high: int) -> Sequence[int]:
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
        held = [self._holding(literal, low, high, text) for literal in rarest]
        found: list[int] = distinct(np.sort(np.concatenate([*held, np.array(equal, np.int64)]))).tolist()
        return found

    def _holding(self, string: str, low: int, high: int, text: str | None = None) -> _Rows:
        """Those of the names from ``low`` to ``high`` that hold a string, which may begin or end with an edge."""
        text, begins = self._text if text is None else text, self._begins
        first, end = begins[low] - 1, begins[high]
        places: list[int] = []
        at = text.find(string, first, end)
        while at >= 0 and len(places) < _FEW:
            places.append(at)
            at = text.find(string, at + 1, end)
        found = np.array(places, np.int64)
        if at >= 0:
            found = np.concatenate([found, self._places(string, text, at, end)])
        names = np.searchsorted(self._begins_array, found + string.startswith(EDGE), side="right")
        return distinct(names - 1)

    def _places(self, string: str, text: str, low: int, high: int) -> _Rows:
        """Where a string is in a text that has it often."""
        if not text.isascii():
            # An edge is that of two names: it may be looked at twice.
            inner, behind = (string[:-1], f"(?={EDGE})") if string.endswith(EDGE) else (string, "")
            matches = re.compile(re.escape(inner) + behind).finditer(text, low, high)
            return np.fromiter(map(methodcaller("start"), matches), np.int64)
        letters = self._letters if text is self._text else self._small_letters
        first, *others = string.encode()
        places = low + np.flatnonzero(letters[low : high - len(others)] == first)
        for at, letter in enumerate(others, 1):
            places = places[letters[places + at] == letter]
        return places

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
