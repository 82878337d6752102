"""What was chosen and hooked for earlier users of a process: one more on the same functions need not look again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shadowgraph.image import Reason
from shadowgraph.live.found import Found, may_come
from shadowgraph.live.numbers import LabelsLater
from shadowgraph.ops.choices import Choice, Chosen
from shadowgraph.ops.choosing_again import ChosenAgain, ImportIndex, choose_again, index_imports
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.refusals import Refusals
from shadowgraph.ops.selection import Selection

__all__ = ["ChosenBefore"]

_MOST = 100  # results that are kept

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Hooked:
    """What is chosen of a module once more: ``rows`` that are hooked, their numbers, and others that cannot be."""

    again: ChosenAgain
    rows: _Numbers
    numbers: _Numbers
    refused: dict[int, Reason]

    @property
    def callers(self) -> _Numbers:
        """The numbers of functions that count from the executable alone."""
        callers = self.again.callers
        return self.numbers[np.isin(self.rows, callers)] if len(callers) else callers

    def choice(self) -> Choice:
        """The same with a place for each of them."""
        choice = self.again.choice()
        choice.refused = dict(self.refused)
        choice.numbers = dict(zip(self.rows.tolist(), self.numbers.tolist(), strict=True))
        return choice


class ChosenBefore:
    """Results by selection, and the number of each function in them, while the process has the same code mapped."""

    def __init__(self, known_modules: KnownModules) -> None:
        self._known_modules = known_modules
        self._maps = b""
        self._forget([])

    def _forget(self, code: list[bytes]) -> None:
        self._code = code
        self._found: dict[tuple[str, str], Found] = {}
        self._numbers: dict[str, _Numbers] = {}  # by row, 0: not hooked by us; by module path
        self._last: Chosen | None = None
        self._imports: dict[str, ImportIndex] | None = None

    def get(self, pid: int, selection: Selection, refusals: Refusals) -> Found | None:
        """What such a selection chooses, if that is hooked already; None if that is not known or may have changed.

        What of it is refused is added to ``refusals``, unless such a selection has been there before.
        """
        if self._has_changed(pid):
            return None
        found = self._found.get(_key(selection))
        if found is None:
            found = self._put_together(selection)
            if found is None:
                return None
            self._keep(selection, found)
            for choice, row, reason in found.refused:
                refusals.add(choice, row, reason)
        return found

    def _has_changed(self, pid: int) -> bool:
        """Whether other code is mapped than before; what was known is forgotten then."""
        with open(f"/proc/{pid}/maps", "rb") as file:
            maps = file.read()
        if maps == self._maps:
            return False
        self._maps, code = maps, _code_in(maps)
        if code == self._code:
            return False
        self._forget(code)
        return True

    def _keep(self, selection: Selection, found: Found) -> None:
        if len(self._found) >= _MOST:
            del self._found[next(iter(self._found))]
        self._found[_key(selection)] = found

    def put(self, pid: int, selection: Selection, found: Found) -> None:
        """Everything of it is hooked now."""
        self._has_changed(pid)
        self._keep(selection, found)
        if found.chosen is None:
            return
        self._last, self._imports = found.chosen, None
        for path, choice in found.chosen.choices.items():
            numbers = self._numbers.setdefault(path, np.zeros(len(choice.known.functions), np.int64))
            rows = np.fromiter(choice.numbers, np.int64, len(choice.numbers))
            numbers[rows] = np.fromiter(choice.numbers.values(), np.int64, len(rows))

    def _put_together(self, selection: Selection) -> Found | None:
        """A choice all of whose functions have been hooked for others."""
        last = self._last
        if last is None:
            return None
        if self._imports is None:
            self._imports = index_imports(last, self._known_modules)
        parts = []
        for again in choose_again(last, self._imports, selection, self._known_modules):
            part = self._hooked(again)
            if part is None:
                return None
            parts.append(part)
        if not any(len(part.rows) for part in parts) or not selection.has_matched:
            return None  # there is something to be said of it
        labels = [
            LabelsLater(part.again.module, part.again.known, part.rows, part.numbers, part.again.names)
            for part in parts
        ]
        return Found(
            np.sort(np.concatenate([part.numbers for part in parts])),
            np.sort(np.concatenate([part.callers for part in parts])),
            lambda: {number: label for some in labels for number, label in some},
            lambda: replace(last, choices={part.again.module.path: part.choice() for part in parts}),
            may_come(selection, last, self._known_modules),
            [(part.again, row, reason) for part in parts for row, reason in part.refused.items()],
        )

    def _hooked(self, again: ChosenAgain) -> _Hooked | None:
        """As far as it can be hooked, if all of that is."""
        rows, refused = again.rows, {}
        if len(rows):
            plan = again.known.plan(rows)
            for row in rows[~plan.hookable[rows] & (plan.reason[rows] != Reason.COLD_PART)].tolist():
                refused[row] = Reason(int(plan.reason[row]))
            rows = rows[plan.hookable[rows]]
        known = self._numbers.get(again.module.path)
        numbers = known[rows] if known is not None else np.zeros(len(rows), np.int64)
        return _Hooked(again, rows, numbers, refused) if numbers.all() else None


def _key(selection: Selection) -> tuple[str, str]:
    return selection.text, selection.libcalls


def _code_in(maps: bytes) -> list[bytes]:
    """The executable mappings of files: a module that comes or goes changes them."""
    return [line for line in maps.split(b"\n") if b"x" in line[: line.find(b" ") + 5] and b"/" in line]
