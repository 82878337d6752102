"""What all users of a target have in common: a name, functions, and a life from register() to unregister()."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shadowgraph.agent.cells import Cells
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.errors import UsageError
from shadowgraph.ops.predicates import check_predicate
from shadowgraph.ops.selection import LibraryCalls, Selection, function_rule

__all__ = ["Numbers", "Place", "User"]

Numbers = npt.NDArray[np.int64]


class Place:
    """Where a registered user is: its slot, its functions, and their labels (``module!function``), by number.

    ``take_off`` is its target's way to unregister it, ``is_over`` tells whether the process has ended.
    """

    def __init__(
        self,
        take_off: Callable[[User], None],
        is_over: Callable[[], bool],
        registry: Registry,
        slot: int,
        labels: dict[int, str],
    ) -> None:
        self.take_off = take_off
        self.is_over = is_over
        self.registry = registry
        self.cells = Cells(registry.arena)
        self.slot = slot
        self.labels = labels
        self.numbers: Numbers = np.array(sorted(labels), np.int64)
        self._nobodys_before = int(registry.arena.header["missed"])

    def losses(self) -> dict[str, int]:
        """What the user has lost. Calls of threads that found the table full may have been its own: they count."""
        losses = self.registry.losses_of(self.slot)
        losses["missed"] += int(self.registry.arena.header["missed"]) - self._nobodys_before
        return losses

    @property
    def is_ended(self) -> bool:
        """Whether somebody else has taken the user off (`shadowgraph detach`). What it has counted is still there."""
        return self.registry.has_ended(self.slot)

    def by_label(self, rows: Iterable[Any], add: Callable[[Any, Any], Any]) -> dict[str, Any]:
        """What belongs to each function, by its label; those of the same name (static ones) are added up."""
        found: dict[str, Any] = {}
        for number, row in zip(self.numbers.tolist(), rows, strict=True):
            label = self.labels[number]
            found[label] = add(found[label], row) if label in found else row
        return found


class User(ABC):
    """Somebody who wants the calls of some functions.

    ``functions`` are patterns as those of ``record --function``: ``name``, ``module!name``, globs, ``re:``. A pattern
    without a module means functions of the executable, and calls from it of functions that it imports. ``when`` is a
    condition on calls (docs/predicates.md).
    """

    slot: int | None = None  # one that it must have

    def __init__(self, functions: Sequence[str], *, when: str | None = None, name: str = "") -> None:
        if isinstance(functions, str) or not functions:
            raise UsageError("functions: a list of patterns is needed, for example ['libc.so.6!malloc']")
        self.functions = tuple(functions)
        self.name = name or type(self).__name__.lower()
        self.when = when
        if when is not None:
            check_predicate(when)
        self._place: Place | None = None
        self._losses: dict[str, int] = {}

    @property
    def selection(self) -> Selection:
        """Which functions are meant."""
        rules = [function_rule(pattern, include=True) for pattern in self.functions]
        return Selection(rules, libcalls=LibraryCalls.DIRECT)

    def pool_size(self, registry: Registry, numbers: Numbers) -> int:
        """How many bytes of the pool it needs, besides its condition."""
        return 0

    @abstractmethod
    def row(self, registry: Registry, cells: Cells, numbers: Numbers, at: int) -> UserRow:
        """What to register for these functions; called while nobody else changes the registry.

        ``at`` is where in the pool it has :meth:`pool_size` bytes.
        """

    @abstractmethod
    def keep(self, place: Place) -> None:
        """Keep what has been counted: the place is about to be given up."""

    # --- its life ---

    def registered(self, place: Place) -> None:
        """It has a place now."""
        self._place = place

    @property
    def is_registered(self) -> bool:
        """Whether calls may reach it: it has been registered, and not been taken off, by whomever."""
        return self._place is not None and not self._place.is_ended

    def unregister(self) -> None:
        """Take it off: when this returns, no entry and no exit reaches it, calls in flight included."""
        if self._place is not None:
            self._place.take_off(self)

    def give_up(self) -> None:
        """Its place is being taken away."""
        place = self._place
        if place is not None:
            self._losses = place.losses()
            self.keep(place)
            self._place = None

    def pause(self) -> None:
        """Let calls pass until :meth:`resume`, without a change of code."""
        self._set_armed(False)

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._set_armed(True)

    def _set_armed(self, on: bool) -> None:
        place = self._registered_place()
        with place.registry.locked():
            if not place.is_ended:
                place.registry.arm(place.slot, on=on)

    def _registered_place(self) -> Place:
        if self._place is None:
            raise UsageError(f"{self.name}: is not registered; target.register() does that")
        if self._place.is_ended:
            raise UsageError(f"{self.name}: has been taken off by somebody else; target.register() puts it on again")
        return self._place

    @property
    def missed(self) -> int:
        """Calls that were its own, or may have been, and could not be served."""
        return self._lost("missed")

    @property
    def filtered(self) -> int:
        """Calls that its condition has left out."""
        return self._lost("filtered")

    @property
    def unwound(self) -> int:
        """Calls of its own that were left without returning, and so have no exit."""
        return self._lost("unwound")

    def _lost(self, what: str) -> int:
        losses = self._losses if self._place is None else self._place.losses()
        return losses.get(what, 0)
