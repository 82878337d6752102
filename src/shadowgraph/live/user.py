"""What all users of a target have in common: a name, functions, and a life from register() to unregister()."""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, Self

from shadowgraph.agent.cells import Cells
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.errors import UsageError
from shadowgraph.live.found import Found, Labels, Numbers
from shadowgraph.live.shared_cells import Readings
from shadowgraph.ops.predicates import check_predicate
from shadowgraph.ops.selection import LibraryCalls, Selection, function_rule

__all__ = ["Numbers", "Owner", "Place", "User"]


class Owner(Protocol):
    """The target that a user is registered on."""

    def unregister(self, user: User) -> None:
        """Take it off."""
        ...

    def replace_functions(self, user: User, functions: Sequence[str]) -> None:
        """Exchange its functions."""
        ...

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        ...


class Place:
    """Where a registered user is: its target, its slot, and the ``functions`` that it is on or has been on."""

    def __init__(self, owner: Owner, registry: Registry, slot: int, functions: Found) -> None:
        self.owner = owner
        self.registry = registry
        self.cells = Cells(registry.arena)
        self.slot = slot
        self.functions = functions
        self._nobodys_before = self._nobodys()

    def add_functions(self, functions: Found) -> None:
        """The user is on these functions, some of which may be new to it."""
        self.functions = functions.beside(self.functions)

    @property
    def numbers(self) -> Numbers:
        """Those of the functions, in order."""
        return self.functions.numbers

    @property
    def labels(self) -> Labels:
        """Those of the functions (``module!function``), by number."""
        return self.functions.labels

    def losses(self) -> dict[str, int]:
        """What the user has lost. Calls of threads that found the table full may have been its own: they count."""
        losses = self.registry.losses_of(self.slot)
        missed, in_vfork = (now - before for now, before in zip(self._nobodys(), self._nobodys_before, strict=True))
        losses["missed"] += missed
        losses["missed_in_vfork"] = in_vfork
        return losses

    def _nobodys(self) -> tuple[int, int]:
        header = self.registry.arena.header
        return int(header["missed"]), int(header["missed_in_vfork"])

    @property
    def is_ended(self) -> bool:
        """Whether somebody else has taken the user off (`shadowgraph detach`). What it has counted is still there."""
        return self.registry.has_ended(self.slot)


class User(ABC):
    """Somebody who wants the calls of some functions.

    ``functions`` are patterns as those of ``record --function``: ``name``, ``module!name``, globs, ``re:``. A pattern
    without a module means functions of the executable, and calls from it of functions that it imports. ``when`` is a
    condition on calls (docs/predicates.md).
    """

    slot: int | None = None  # one that it must have

    def __init__(self, functions: Sequence[str], *, when: str | None = None, name: str = "") -> None:
        self._last_selection = self.selection_of(functions).anew()
        self.functions = tuple(functions)
        self._selected = self.functions
        self.name = name or type(self).__name__.lower()
        self.when = when
        if when is not None:
            check_predicate(when)

    def _begin_anew(self) -> None:
        """Be nowhere, and have seen nothing."""
        self.changing = threading.RLock()  # held while its functions are exchanged, or its counts are read
        self._place: Place | None = None
        self._losses: dict[str, int] = {}
        self._parts: list[Self] = []
        self._has_moved = False
        self._is_paused = False
        self._losses_before: dict[str, int] = {}

    # --- other programs (see shadowgraph.live.execs) ---

    def another(self) -> Self:
        """One that stands for it in another program that the process, or a child of it, has executed.

        What it sees is added to what this one has seen, while it is there and when it has gone.
        """
        part = copy.copy(self)
        part._begin_anew()
        return part

    def join(self, part: Self) -> None:
        """It is in one program more."""
        with self.changing:
            self._parts.append(part)
            if self._is_paused:
                part.pause()

    def moved(self) -> None:
        """The process that it was registered in has gone over to another program, and somebody stands for it there."""
        self._has_moved = True

    def left_by(self, pid: int) -> None:  # noqa: B027 (for most there is nothing)
        """A process has left the program that this one is in, for another one; nothing more comes of it here."""

    def leave(self, part: Self) -> None:
        """A program is over for us; the part that was there has given up its place."""
        with self.changing:
            self._parts.remove(part)
            self._add(part)
            for name, lost in part._losses.items():
                self._losses_before[name] = self._losses_before.get(name, 0) + lost

    def _add(self, part: Self) -> None:  # noqa: B027 (there may be nothing)
        """Take over what a part has kept."""

    def selection_of(self, functions: Sequence[str]) -> Selection:
        """Which functions are meant by patterns. UsageError if there are none."""
        if isinstance(functions, str) or not functions:
            raise UsageError("functions: a list of patterns is needed, for example ['libc.so.6!malloc']")
        rules = [function_rule(pattern, include=True) for pattern in functions]
        return Selection(rules, libcalls=LibraryCalls.DIRECT)

    @property
    def selection(self) -> Selection:
        """Which functions are meant; nothing has matched yet."""
        if self._selected is not self.functions:
            self._last_selection, self._selected = self.selection_of(self.functions).anew(), self.functions
        return self._last_selection.anew()

    def fitted(self, found: Found) -> Found:
        """What it takes of the functions that were found for it: all of them, if it has room for all."""
        return found

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

    def make_room(self, place: Place, found: Found) -> None:  # noqa: B027 (many need none)
        """Have ready what it needs for other functions than it is on; called while nobody else changes the registry.

        StartError, with nothing changed, if there is no room for it.
        """

    def exchanged(self, functions: Found, readings: Readings) -> None:
        """It is on these functions now. ``readings``: what shared cells held when they were exchanged."""
        self.place.add_functions(functions)

    # --- its life ---

    def registered(self, place: Place) -> None:
        """It has a place now."""
        self._place = place
        self._has_moved = self._is_paused = False
        self._losses_before = {}

    @property
    def is_registered(self) -> bool:
        """Whether calls may reach it: it has been registered, and not been taken off, by whomever."""
        here = self.has_place and not self._has_moved
        return here or any(part.is_registered for part in list(self._parts))

    @property
    def has_place(self) -> bool:
        """Whether calls may reach it where it has been registered itself."""
        return self._place is not None and not self._place.is_ended

    def replace_functions(self, functions: Sequence[str]) -> None:
        """Go over to other functions, named as at the beginning, while the program calls them.

        It is one moment for all of them and for all threads: each call belongs to the former functions or to the new
        ones. What has been counted stays; functions that are in both are counted on. If no function can be hooked that
        these patterns name, that is an error, and nothing has changed.
        """
        self._registered_place().owner.replace_functions(self, functions)

    def unregister(self) -> None:
        """Take it off: when this returns, no entry and no exit reaches it, calls in flight included."""
        if self._place is not None:
            self._place.owner.unregister(self)

    def taken_off(self) -> None:  # noqa: B027 (for most there is nothing)
        """It has been taken off, in all programs that it was in."""

    def give_up(self) -> None:
        """Its place is being taken away."""
        place = self._place
        if place is not None:
            self._losses = place.losses()
            self.keep(place)
            self._place = None

    def pause(self) -> None:
        """Let calls pass until :meth:`resume`, without a change of code."""
        self._set_paused(True)

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._set_paused(False)

    def _set_paused(self, paused: bool) -> None:
        with self.changing:
            if not self._parts:
                self.refuse_taken_off()
            self._is_paused = paused
            everybody: list[User] = [self, *self._parts]
            for one in everybody:
                if one.has_place:
                    one._arm(one.place, on=not paused)

    def _arm(self, place: Place, *, on: bool) -> None:
        with place.registry.locked():
            if not place.is_ended:
                place.registry.arm(place.slot, on=on)

    @property
    def place(self) -> Place:
        """Where it is registered."""
        if self._place is None:
            raise UsageError(f"{self.name}: is not registered; target.register() does that")
        return self._place

    def refuse_taken_off(self) -> None:
        """UsageError if somebody else has taken it off."""
        if self.place.is_ended:
            raise UsageError(f"{self.name}: has been taken off by somebody else; target.register() puts it on again")

    def _registered_place(self) -> Place:
        self.refuse_taken_off()
        return self.place

    @property
    def missed(self) -> int:
        """Calls that were its own, or may have been, and could not be served."""
        return self._lost("missed")

    @property
    def missed_in_vfork(self) -> int:
        """How many of the missed ones children of vfork() have made, whose parents had made no traced call before."""
        return self._lost("missed_in_vfork")

    @property
    def filtered(self) -> int:
        """Calls that its condition has left out."""
        return self._lost("filtered")

    @property
    def unwound(self) -> int:
        """Calls of its own that were left without returning, and so have no exit."""
        return self._lost("unwound")

    def _lost(self, what: str) -> int:
        with self.changing:
            losses = self._losses if self._place is None else self._place.losses()
            others = sum(part._lost(what) for part in self._parts)
            return losses.get(what, 0) + self._losses_before.get(what, 0) + others
