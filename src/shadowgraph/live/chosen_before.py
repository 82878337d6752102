"""What was chosen and hooked for earlier users of a process: one more on the same functions need not look again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shadowgraph.image import Reason
from shadowgraph.live.numbers import wanted
from shadowgraph.ops.choices import Chosen
from shadowgraph.ops.entering import choose_again, needed_modules
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.selection import Selection

__all__ = ["ChosenBefore", "Found"]


@dataclass(frozen=True)
class Found:
    """Functions that are hooked: what was chosen, their labels by number, and which count from the executable alone.

    What was chosen is not known where somebody else has hooked them for us. ``follows``: libraries that are loaded
    later may have functions that are wanted.
    """

    chosen: Chosen | None
    labels: dict[int, str]
    callers: set[int]
    follows: bool = False

    @classmethod
    def of(cls, chosen: Chosen, selection: Selection, known_modules: KnownModules) -> Found:
        """What was found for a selection."""
        follows = selection.waits_for(())
        if follows and not selection.waits_for(module.name for module in chosen.modules):  # all are there
            staying = needed_modules(chosen.executable, chosen.modules, known_modules)
            follows = selection.waits_for(module.name for module in staying)
        return cls(chosen, *wanted(chosen.choices.values()), follows)

    def beside(self, labels: dict[int, str], callers: set[int]) -> Found:
        """These, and other functions that a user is on."""
        return replace(self, labels={**labels, **self.labels}, callers=self.callers | callers)

    def with_those_of_child(self, more: Found) -> Found:
        """These, and what a forked child has besides."""
        assert self.chosen is not None and more.chosen is not None
        chosen = replace(self.chosen, choices={**self.chosen.choices, **more.chosen.choices})
        return replace(self.beside(more.labels, more.callers), chosen=chosen)


class ChosenBefore:
    """Results by selection, and the number of each function in them, while the process has the same code mapped."""

    def __init__(self, known_modules: KnownModules) -> None:
        self._known_modules = known_modules
        self._forget("")

    def _forget(self, code: str) -> None:
        self._code = code
        self._found: dict[tuple[str, str], Found] = {}
        self._numbers: dict[str, npt.NDArray[np.int64]] = {}  # by row, 0: not hooked by us; by module path
        self._last: Chosen | None = None

    def get(self, pid: int, selection: Selection) -> Found | None:
        """What such a selection chooses, if that is hooked already; None if that is not known or may have changed."""
        code = _code_of(pid)
        if code != self._code:
            self._forget(code)
            return None
        return self._found.get(_key(selection)) or self._put_together(selection)

    def put(self, pid: int, selection: Selection, found: Found) -> None:
        """Everything of it is hooked now."""
        code = _code_of(pid)
        if code != self._code:
            self._forget(code)
        self._found[_key(selection)] = found
        if found.chosen is None:
            return
        self._last = found.chosen
        for path, choice in found.chosen.choices.items():
            numbers = self._numbers.setdefault(path, np.zeros(len(choice.known.functions), np.int64))
            rows = np.fromiter(choice.numbers, np.int64, len(choice.numbers))
            numbers[rows] = np.fromiter(choice.numbers.values(), np.int64, len(rows))

    def _put_together(self, selection: Selection) -> Found | None:
        """A choice all of whose functions have been hooked for others."""
        if self._last is None:
            return None
        choices = choose_again(self._last, selection, self._known_modules)
        hooked = False
        for path, choice in choices.items():
            rows = np.fromiter(choice.flags, np.int64, len(choice.flags))
            if not len(rows):
                continue
            plan = choice.known.plan(rows)
            for row in rows[~plan.hookable[rows] & (plan.reason[rows] != Reason.COLD_PART)].tolist():
                choice.refused[row] = Reason(int(plan.reason[row]))
            rows = rows[plan.hookable[rows]]
            numbers = self._numbers[path][rows] if path in self._numbers else np.zeros(len(rows), np.int64)
            if not numbers.all():
                return None
            choice.numbers = dict(zip(rows.tolist(), numbers.tolist(), strict=True))
            hooked = hooked or len(rows) > 0
        if not hooked or len(selection.matched) < len(selection.rules):
            return None  # there is something to be said of it
        return Found.of(replace(self._last, choices=choices), selection, self._known_modules)


def _key(selection: Selection) -> tuple[str, str]:
    return selection.text, selection.libcalls


def _code_of(pid: int) -> str:
    """The executable mappings of files: a module that comes or goes changes them."""
    with open(f"/proc/{pid}/maps", errors="surrogateescape", newline="\n") as file:
        return "".join(line for line in file if "x" in line[: line.find(" ") + 5] and "/" in line)
