"""Functions that are hooked for a user: what it takes to be on them at once, and the rest when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shadowgraph.agent.number_sets import both, either
from shadowgraph.image import Reason
from shadowgraph.live.numbers import wanted
from shadowgraph.ops.choices import Chosen
from shadowgraph.ops.entering import needed_modules
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.refusals import OfModule
from shadowgraph.ops.selection import Selection

__all__ = ["Found", "Labels", "Numbers", "in_order", "may_come"]

Numbers = npt.NDArray[np.int64]
Labels = dict[int, str]  # not to be changed: others look at them as well


@dataclass(frozen=True)
class Found:
    """Functions that are hooked, by their ``numbers``, and ``callers``, those that count from the executable alone.

    ``follows``: libraries that are loaded later may have functions that are wanted. ``refused`` are functions that were
    wanted and cannot be hooked: modules, rows and reasons. Other users may have the same one.
    """

    numbers: Numbers
    callers: Numbers
    make_labels: Callable[[], Labels]
    make_chosen: Callable[[], Chosen | None] = lambda: None
    follows: bool = False
    refused: Sequence[tuple[OfModule, int, Reason]] = ()

    @classmethod
    def of(cls, chosen: Chosen, *, follows: bool) -> Found:
        """What has been chosen and hooked."""
        choices = chosen.choices.values()
        labels, callers = wanted(choices)
        refused = [(choice, row, reason) for choice in choices for row, reason in choice.refused.items()]
        return cls(in_order(labels), in_order(callers), lambda: labels, lambda: chosen, follows, refused)

    @classmethod
    def named(cls, labels: Labels, callers: Iterable[int]) -> Found:
        """Functions that somebody else has hooked for us: what was chosen is not known."""
        return cls(in_order(labels), in_order(callers), lambda: labels)

    @cached_property
    def labels(self) -> Labels:
        """How they are called (``module!function``), by number."""
        return self.make_labels()

    @cached_property
    def chosen(self) -> Chosen | None:
        """What was chosen, if that is known."""
        return self.make_chosen()

    def beside(self, others: Found) -> Found:
        """These, and other functions that a user is on."""
        return replace(
            self,
            numbers=either(self.numbers, others.numbers),
            callers=either(self.callers, others.callers),
            make_labels=lambda: {**others.labels, **self.labels},
        )

    def only(self, numbers: Numbers) -> Found:
        """Some of these."""
        taken = both(self.numbers, numbers)
        return replace(
            self,
            numbers=taken,
            callers=both(self.callers, taken),
            make_labels=lambda: {number: self.labels[number] for number in taken.tolist()},
        )

    def with_those_of_child(self, more: Found) -> Found:
        """These, and what a forked child has besides."""

        def chosen() -> Chosen:
            assert self.chosen is not None and more.chosen is not None
            return replace(self.chosen, choices={**self.chosen.choices, **more.chosen.choices})

        return replace(self.beside(more), make_chosen=chosen)


def in_order(numbers: Iterable[int]) -> Numbers:
    """Numbers as an array, in order."""
    return np.sort(np.fromiter(numbers, np.int64))


def may_come(selection: Selection, chosen: Chosen, known_modules: KnownModules) -> bool:
    """Whether libraries that are loaded later may have functions that are wanted."""
    if not selection.waits_for(()):
        return False
    if selection.waits_for(module.name for module in chosen.modules):
        return True
    staying = needed_modules(chosen.executable, chosen.modules, known_modules)  # others may come again
    return selection.waits_for(module.name for module in staying)
