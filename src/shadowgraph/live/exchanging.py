"""Putting a user on its functions, and exchanging these while threads call them.

The agent decides about each call by one side of the registry (native/include/shadowgraph/users.h), so a filter changes
for all functions at one moment. What a user has of its own for each function is made before.

Counters without a condition share a cell for each function. What such a counter has seen of a function that it leaves
or comes to is told by what the cell holds at that moment. Where nobody else counts the function, nobody but this
counter's own calls adds to it, so it may as well be read a little earlier or later. Where somebody does, all threads
stand still while cells are read and filters are exchanged: the counter sees a call when it is added.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shadowgraph.agent.cells import Cells
from shadowgraph.agent.number_sets import one_alone
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import StartError, UsageError
from shadowgraph.live.shared_cells import Readings
from shadowgraph.ops.condition import Condition
from shadowgraph.ops.processes import runs, sharers, shares
from shadowgraph.target.stopping import StoppedProcess

if TYPE_CHECKING:
    from shadowgraph.live.found import Found
    from shadowgraph.live.user import User

__all__ = ["Switch", "enrol", "exchange", "make_room"]

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Switch:
    """What is to be exchanged: the functions of the user in a slot, and the text that says which they are.

    ``callers`` are those of them of which it wants only calls from the executable. ``follows``: libraries that are
    loaded later, ``execs``: into other programs.
    """

    slot: int
    numbers: _Numbers
    callers: _Numbers
    text: str
    follows: bool
    execs: bool = False

    @classmethod
    def of(cls, user: User, found: Found, text: str, *, execs: bool) -> Switch:
        """The exchange of a registered user's functions for those that were found."""
        return cls(user.place.slot, found.numbers, found.callers, text, found.follows, execs)

    @classmethod
    def from_lists(cls, numbers: list[int], callers: list[int], **others: Any) -> Switch:
        """What :meth:`in_lists` has told another process."""
        return cls(numbers=np.array(numbers, np.int64), callers=np.array(callers, np.int64), **others)

    def in_lists(self) -> dict[str, Any]:
        """Its fields, without arrays."""
        return {**vars(self), "numbers": self.numbers.tolist(), "callers": self.callers.tolist()}


def enrol(
    registry: Registry, user: User, found: Found, *, execs: bool, ready: Callable[[int, int], None] | None = None
) -> int:
    """Register a user on functions that are hooked; its slot.

    ``ready`` hears of this, and of the user's epoch, before it has any call. ``execs``: it goes along into other
    programs.
    """
    numbers, callers = found.numbers, found.callers
    condition = Condition.of(user.when)

    def enrolled() -> int:
        cells = Cells(registry.arena)
        own = (user.pool_size(registry, numbers) + 63) // 64 * 64
        at = cells.find_pool(own + condition.size)
        row = condition.added_to(user.row(registry, cells, numbers, at), cells, at + own)
        row = row.with_pool(at, own + condition.size)
        slot = registry.free_slot() if user.slot is None else user.slot
        epoch = registry.begin_epoch()
        if ready is not None:
            ready(slot, epoch)
        registry.add(row, numbers, callers, slot=slot, epoch=epoch)
        registry.set_follows(slot, on=found.follows, execs=execs)
        return slot

    with registry.locked():
        try:
            return enrolled()
        except (StartError, UsageError):
            registry.settle()  # there may be room that others have left
            return enrolled()


def make_room(user: User, found: Found) -> None:
    """Have ready what a registered user needs for other functions.

    An error, with nothing changed, if there is no room.
    """
    place = user.place
    with place.registry.locked():
        user.refuse_taken_off()
        try:
            user.make_room(place, found)
        except (StartError, UsageError):
            place.registry.settle()
            user.make_room(place, found)


def exchange(registry: Registry, wanted: Switch, *, held: bool = False) -> Readings:
    """Exchange the functions of a user for all of them at one moment; what shared cells held then.

    ``held``: the process stands still already.
    """
    numbers, callers = wanted.numbers, wanted.callers
    with registry.locked():
        if registry.has_ended(wanted.slot):
            raise UsageError(
                "the user has been taken off by somebody else meanwhile; target.register() puts it on again"
            )
        registry.set_follows(wanted.slot, on=wanted.follows, execs=wanted.execs)
        if not registry.counts_shared(wanted.slot):
            registry.replace_functions(wanted.slot, numbers, callers, wanted.text)
            return Readings()
        former = registry.functions_of(wanted.slot)
        concerned = one_alone(former, numbers)
        still = not held and registry.are_counted(concerned, but=wanted.slot)
        with _standing_still(registry.arena.inode) if still else nullcontext():
            before = _read(registry, concerned)
            registry.replace_functions(wanted.slot, numbers, callers, wanted.text)
            after = _read(registry, concerned)
    held_then = np.where(np.isin(concerned, former), after, before)
    return Readings(concerned, held_then)


def _read(registry: Registry, numbers: _Numbers) -> npt.NDArray[np.int64]:
    return Cells(registry.arena).read_each(registry.cells_of(numbers)).view(np.int64)


@contextmanager
def _standing_still(inode: int) -> Iterator[None]:
    """Stop all processes that share an arena, those included that fork from them before they stand still."""
    known = _processes()
    new = sharers(inode, 0)
    with ExitStack() as stops:
        while new:
            for pid in new:
                try:
                    stops.enter_context(StoppedProcess(pid))
                except StartError:
                    if runs(pid):
                        raise
            now = _processes()  # to look at all again would take long
            new = [pid for pid in now - known if shares(pid, inode)]
            known |= now
        yield


def _processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}
