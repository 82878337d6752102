"""The registry of users in an arena: who is on which functions, changed by one controller at a time.

See native/include/shadowgraph/users.h for what the agent reads of it, and in which order. Words that threads of the
target read while they are changed are written by single aligned stores. A controller that dies in the middle leaves no
harm: who is on a function is told by the functions' masks and the armed slots together, and the next controller sweeps
what it left.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.agent.barrier import order_all_threads
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.entries import Leading, lead, put_on
from shadowgraph.agent.number_sets import either, without
from shadowgraph.agent.registered import Registered
from shadowgraph.agent.rings import RECORDER_SLOTS, forget_recorder
from shadowgraph.agent.user_masks import UserMasks
from shadowgraph.agent.user_row import UserRow
from shadowgraph.errors import StartError, UsageError

__all__ = ["Registry", "UserRow", "process_start"]

_KEPT = 4  # arrays of cell numbers
_MANY_LEFT = 24  # slots that wait to be free: then it is worth the time to look
_Numbers = npt.NDArray[np.integer]


def process_start(pid: int) -> int:
    """When a process was started, in clock ticks since boot; 0 if there is none, or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in b"ZX" else int(fields[19])


@lru_cache(maxsize=1)
def _own_start(pid: int) -> int:
    return process_start(pid)


os.register_at_fork(after_in_child=_own_start.cache_clear)


def _all_recorders() -> StartError:
    return StartError(f"{layout.RECORDERS} recorders are in this process, and no more can be; end one of them first")


def _all_taken() -> StartError:
    return StartError(f"all {layout.USERS} places for users are taken in this process; end one of them first")


class Registry(Registered):
    """The registry of one arena. ``zones`` has the entry paths of its agent."""

    def __init__(self, arena: Arena, zones: Mapping[str, int]) -> None:
        super().__init__(arena)
        self.zones = zones
        self._masks = UserMasks(arena.registry)
        self._cells: list[tuple[_Numbers, npt.NDArray[np.int64]]] = []

    @cached_property
    def _leading(self) -> Leading:
        return Leading.to(self.zones)

    # --- one controller at a time ---

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who changes it; first, what dead controllers have left is swept."""
        with self.arena.locked():
            self._sweep()
            if len(self._left()) >= _MANY_LEFT:
                self.settle()
            yield

    def _sweep(self) -> None:
        there = self._taken(but=layout.USER_LEFT)
        pids, starts = (self._users[f"controller_{name}"].tolist() for name in ("pid", "start"))
        own = os.getpid()
        started = {pid: _own_start(pid) if pid == own else process_start(pid) for pid in {pids[slot] for slot in there}}
        for slot in there:
            if started[pids[slot]] != starts[slot]:
                self._remove(slot)

    def settle(self) -> None:
        """Set free what users have left for whom no thread is doing anything any more. Called with the lock held."""
        left = self._left()
        if not left:
            return
        order_all_threads()
        alive = self.arena.threads["state"] == layout.THREAD_LIVE
        busy = int(np.bitwise_or.reduce(self.arena.threads["busy"][alive], initial=np.uint64(0)))
        inside = set((self.arena.threads["inside"][alive] & np.uint64(layout.INSIDE_SLOT)).tolist())
        for slot in left:
            if not busy >> slot & 1 and slot + 1 not in inside:
                row = self._users[slot]
                if row["instances"]:
                    self.arena.clear_pool(int(row["pool_at"]), int(row["pool_size"]))  # it is much memory
                row["kind"] = layout.USER_FREE

    def _left(self) -> list[int]:
        flags = self._users["flags"].tolist()
        return [slot for slot in self._taken() if flags[slot] & layout.USER_LEFT]

    def is_busy(self, slot: int) -> bool:
        """Whether a thread may be doing something for a user that it has begun before. Called with the lock held."""
        order_all_threads()
        alive = self.arena.threads["state"] == layout.THREAD_LIVE
        return bool((self.arena.threads["busy"][alive] >> np.uint64(slot) & np.uint64(1)).any())

    # --- events ---

    def set_follows(self, slot: int, *, on: bool, execs: bool = False) -> None:
        """Note whether a user answers when libraries are loaded, or another program is executed. With the lock held."""
        flags = int(self._users[slot]["flags"]) & ~(layout.USER_FOLLOWS | layout.USER_FOLLOWS_EXEC)
        wanted = (layout.USER_FOLLOWS if on else 0) | (layout.USER_FOLLOWS_EXEC if execs else 0)
        self._users[slot]["flags"] = flags | wanted

    # --- functions ---

    def number_functions(self, count: int) -> npt.NDArray[np.int64]:
        """Numbers for so many functions that are about to be hooked."""
        with self.arena.locked():
            first = int(self._row["next_function"])
            if first + count > layout.FUNCTIONS:
                raise UsageError(f"more functions than can be hooked ({layout.FUNCTIONS - 1:,}); choose fewer")
            self._row["next_function"] = first + count
        return np.arange(first, first + count)

    def give_cells(self, numbers: _Numbers) -> None:
        """Give a cell number to each of these functions that has none."""
        if any(known is numbers for known, _ in self._cells):
            return
        functions = self.arena.functions
        without = numbers[functions["cell"][numbers] == 0]
        first = int(self._row["next_cell"])
        if first + len(without) > layout.COUNTER_CELLS:
            raise UsageError(
                f"more functions than can be counted or measured in a process ({layout.COUNTER_CELLS - 1:,}); "
                "choose fewer functions"
            )
        functions["cell"][without] = np.arange(first, first + len(without))
        self._row["next_cell"] = first + len(without)

    def cells_of(self, numbers: _Numbers) -> npt.NDArray[np.int64]:
        """The cell numbers of functions that have been given some. They stay, so those of the last arrays are kept."""
        for known, cells in self._cells:
            if known is numbers:
                return cells
        cells = self.arena.functions["cell"][numbers].astype(np.int64)
        if cells.all():
            self._cells = [(numbers, cells), *self._cells][:_KEPT]
        return cells

    # --- users ---

    def begin_epoch(self) -> int:
        """Begin another epoch; which it is. Called with the lock held."""
        epoch = int(self._row["epoch"]) + 1
        self._row["epoch"] = epoch
        return epoch

    def add(
        self,
        user: UserRow,
        numbers: _Numbers,
        callers: _Numbers | None = None,
        *,
        slot: int | None = None,
        epoch: int | None = None,
    ) -> int:
        """Register a user on functions that are hooked, and arm it; returns its slot. Called with the lock held.

        ``epoch`` is its own, if that has begun already. ``callers`` are those of the
        functions of which it wants only calls from the executable.
        """
        if slot is None:
            slot = self.free_slot()
        if slot in RECORDER_SLOTS:
            self._masks.set("recorders", slot, user.kind == layout.USER_RECORDER)
        epoch = self.begin_epoch() if epoch is None else epoch
        self._row["epochs"][slot] = epoch
        self._write_user(slot, user)
        self._losses(slot)[:] = 0  # those of whom the slot belonged to before
        self._append_order(slot)
        is_simple = (
            user.is_simple and not user.is_limited and (user.kind != layout.USER_RECORDER or slot == RECORDER_SLOTS[0])
        )
        self._masks.describe(slot, user, is_simple=is_simple)
        if slot != 0:
            self._share_frames()
        self._masks.begin(slot, epoch)
        put_on(self.arena.functions, numbers, 1 << slot)
        if callers is not None and len(callers):
            self.arena.functions["callers"][callers] |= np.uint64(1 << slot)
        self._masks.set("armed", slot, True)
        self._lead(numbers)
        return slot

    def claim_recorder(self) -> int:
        """A slot for a recorder: it is the caller's from now on, to register it there. Called with the lock held."""
        if (self._users["kind"][list(RECORDER_SLOTS)] != layout.USER_FREE).all():
            self.settle()
        for slot in RECORDER_SLOTS:
            if int(self._users[slot]["kind"]) == layout.USER_FREE:
                self._write_user(slot, UserRow(layout.USER_RECORDER, "record"))
                self._users[slot]["flags"] = layout.USER_ENDED  # not there yet
                self._losses(slot)[:] = 0
                return slot
        recorders = (self._users["kind"][list(RECORDER_SLOTS)] == layout.USER_RECORDER).all()
        raise _all_recorders() if recorders else _all_taken()

    def expect(self, pid: int, start: int, thread: int) -> None:
        """Have a slot stand for a controller that is to enter this program as well. Called with the lock held."""
        slot = self.free_slot()
        self._write_user(slot, UserRow(layout.USER_EXPECTED, "expected"))
        self._users[slot]["flags"] = layout.USER_ENDED  # who looks for users sees none
        for name, value in (("start", start), ("pid", pid), ("thread", thread)):
            self._users[slot][f"controller_{name}"] = value

    def expect_no_more(self, slot: int) -> None:
        """Nobody is to be waited for whom a slot stands for. Called with the lock held."""
        self._users[slot]["kind"] = layout.USER_FREE
        self.arena.answer_all(slot)

    def _share_frames(self) -> None:
        """Somebody comes beside a recorder whose limit of depth the plain paths see to, by taking the frames beyond."""
        plain = int(self._row["recorders"]) & int(self._row["live"]) & ~int(self._row["limited"]) & 1
        if plain and int(self.arena.rings[0]["depth_limit"]):
            self._masks.set("limited", 0, True)
            self._masks.set("simple", 0, False)
            self._lead(self.functions_of(0))

    def put_on(self, slot: int, numbers: _Numbers, callers: _Numbers) -> None:
        """Put a user on more functions; ``callers`` as in :meth:`add`. Called with the lock held."""
        functions = self.arena.functions
        functions["callers"][callers] |= np.uint64(1 << slot)  # first: entry paths of others may look at both
        put_on(functions, numbers, 1 << slot)
        self._lead(numbers)

    def lead(self, numbers: _Numbers) -> None:
        """Lead functions whose records have just been written to the path that serves who is on them."""
        self._lead(numbers)

    def add_flags(self, flags: Mapping[int, int], variants: Mapping[int, int]) -> None:
        """Let the agent look at functions for more of its own needs, by number. Called with the lock held."""
        for number, more in flags.items():
            self.arena.functions["flags"][number] |= more
            if number in variants:
                self.arena.functions["variant"][number] = variants[number]
        self._lead(np.array(list(flags), np.int64))

    def arm(self, slot: int, *, on: bool) -> None:
        """Pause or resume a user, without a change of code. Called with the lock held."""
        self._masks.set("armed", slot, on)
        self._lead(self.functions_of(slot))

    def remove(self, slot: int) -> None:
        """Take a user off: from now on no entry and no exit reaches it. Called with the lock held."""
        self._remove(slot)

    def end(self, slot: int) -> None:
        """Take another controller's user off, for it to notice. Called with the lock held."""
        self._masks.set("armed", slot, False)
        self._lead(self.functions_of(slot))
        if int(self._users[slot]["kind"]) == layout.USER_COUNTER and self.counts_shared(slot):
            self._keep_counts(slot)
        self._users[slot]["flags"] |= layout.USER_ENDED
        self._take_off(slot)

    def counts_shared(self, slot: int) -> bool:
        """Whether the user of a slot counts in the cells that all counters share."""
        return bool(int(self._row["counters"]) >> slot & 1)

    def _keep_counts(self, slot: int) -> None:
        row, numbers = self._users[slot], self.functions_of(slot)
        counts = Cells(self.arena).read_each(self.cells_of(numbers))
        at, size = int(row["pool_at"]), min(int(row["pool_size"]), counts.nbytes)
        self.arena.pool[at : at + size] = counts.view(np.uint8)[:size]

    def are_counted(self, numbers: _Numbers, *, but: int) -> bool:
        """Whether other counters than the one in this slot add to the shared cells of any of these functions."""
        counting = int(self._row["armed"]) & int(self._row["counters"]) & ~(1 << but)
        masks = self.arena.functions["users"][numbers, int(self._row["side"]) & 1]
        return bool((masks & np.uint64(counting)).any())

    def replace_functions(
        self, slot: int, numbers: _Numbers, callers: _Numbers | None = None, text: str | None = None
    ) -> None:
        """Exchange the functions of a user, for all of them at one moment. Called with the lock held.

        Where only the callers change of whom it wants the calls of a function, they do so right after that moment.
        ``text`` is what its filter is called from then on.
        """
        functions, bit = self.arena.functions, np.uint64(1 << slot)
        former = self.functions_of(slot)
        both = either(former, numbers.astype(np.int64))
        wanted = np.zeros(0, np.int64) if callers is None else callers.astype(np.int64)
        new = without(wanted, former)
        now = int(self._row["side"]) & 1
        functions["users"][both, 1 - now] = functions["users"][both, now] & ~bit
        functions["users"][numbers, 1 - now] |= bit
        functions["callers"][new] |= bit
        self._lead(both)  # to a path that looks at the masks, where the two differ
        self._row["side"] = 1 - now
        self.begin_epoch()  # whoever has read the masks of the other side reads again
        functions["users"][both, now] = functions["users"][both, 1 - now]
        functions["callers"][without(both, wanted)] &= ~bit
        functions["callers"][wanted] |= bit
        self._lead(both)
        if text is not None:
            self._users[slot]["filter"] = text[:95].encode()[:95]

    def _remove(self, slot: int) -> None:
        self._take_off(slot)
        if int(self._users[slot]["kind"]) == layout.USER_RECORDER:
            forget_recorder(self.arena, slot)
        self._users[slot]["flags"] |= layout.USER_LEFT

    def _take_off(self, slot: int) -> None:
        self._masks.set("armed", slot, False)
        # On either side: a controller that has been killed in the middle of an exchange leaves them different.
        masks = self._functions["users"]
        numbers = np.flatnonzero((masks[:, 0] | masks[:, 1]) >> np.uint64(slot) & np.uint64(1))
        keep = ~np.uint64(1 << slot)
        self.arena.functions["users"][numbers] &= keep
        self.arena.functions["callers"][numbers] &= keep
        self._lead(numbers)
        self._masks.clear(slot)
        self.arena.answer_all(slot)

    def free_slot(self) -> int:
        """The slot behind all others if there is one: then the order of the slots is that of the registrations.

        Those that recorders may have are given to others last.
        """
        last = layout.USERS - layout.RECORDERS
        used = set(self._taken())
        if used.issuperset(range(1, last + 1)):
            self.settle()
            used = set(self._taken())
        behind = max((slot for slot in used if slot <= last), default=0) + 1
        if behind <= last:
            return behind
        order = [*range(1, last + 1), *reversed(RECORDER_SLOTS)]
        free: int | None = next((slot for slot in order if slot not in used), None)
        if free is None:
            raise _all_taken()
        return free

    def _write_user(self, slot: int, user: UserRow) -> None:
        row, pid = self._users[slot], os.getpid()
        self._users[slot : slot + 1].view(np.uint8)[:] = 0
        for name, value in user.fields.items():
            row[name] = value
        row["controller_pid"] = pid
        row["controller_start"] = _own_start(pid)
        row["controller_thread"] = threading.get_native_id()
        row["name"] = user.name.encode()[:31]
        row["filter"] = user.filter[:95].encode()[:95]
        row["kind"] = user.kind

    def _append_order(self, slot: int) -> None:
        order = self._row["order"]
        kept = [known for known in self.slots() if known != slot]
        new = [*kept, slot]
        # When the recorder in its slot has its turn, none of the others can tell.
        seen = [known for known in new if not self._is_recorder(known)]
        self._row["has_order"] = int(seen != sorted(seen))
        order[:] = [*new, *[255] * (layout.USERS - len(new))]

    def _lead(self, numbers: _Numbers) -> None:
        """Lead the thunks of these functions to the path that serves who is on them now."""
        leading = self._leading
        for name in ("armed", "counters", "measures", "frugal"):
            setattr(leading, name, int(self._row[name]))
        special = int(self._row["conditional"]) | int(self._row["limited"])
        leading.recorders = int(self._row["recorders"]) & ~special
        lead(self.arena.functions, numbers, leading)
