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

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.agent.barrier import order_all_threads
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.entries import set_entries
from shadowgraph.agent.rings import RECORDER_SLOTS, forget_recorder
from shadowgraph.agent.user_masks import UserMasks
from shadowgraph.agent.user_row import UserRow
from shadowgraph.errors import StartError, UsageError

__all__ = ["Registry", "UserRow", "process_start"]

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


def _all_recorders() -> StartError:
    return StartError(f"{layout.RECORDERS} recorders are in this process, and no more can be; end one of them first")


def _all_taken() -> StartError:
    return StartError(f"all {layout.USERS} places for users are taken in this process; end one of them first")


class Registry:
    """The registry of one arena. ``zones`` has the entry paths of its agent."""

    def __init__(self, arena: Arena, zones: Mapping[str, int]) -> None:
        self.arena = arena
        self.zones = zones
        self._row = arena.registry
        self._users = arena.registry["users"]
        self._masks = UserMasks(arena.registry)

    @property
    def tick_base(self) -> int:
        """The tick from which the times of all users count."""
        return int(self.arena.header["tick_base"])

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
        left = self._users["flags"] & layout.USER_LEFT != 0
        there = np.flatnonzero((self._users["kind"] != layout.USER_FREE) & ~left)
        pids = self._users["controller_pid"][there].tolist()
        started = {pid: process_start(pid) for pid in set(pids)}
        for slot, pid in zip(there.tolist(), pids, strict=True):
            if started[pid] != int(self._users["controller_start"][slot]):
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
        left = (self._users["kind"] != layout.USER_FREE) & (self._users["flags"] & layout.USER_LEFT != 0)
        found: list[int] = np.flatnonzero(left).tolist()
        return found

    def is_busy(self, slot: int) -> bool:
        """Whether a thread may be doing something for a user that it has begun before. Called with the lock held."""
        order_all_threads()
        alive = self.arena.threads["state"] == layout.THREAD_LIVE
        return bool((self.arena.threads["busy"][alive] >> np.uint64(slot) & np.uint64(1)).any())

    # --- who is there ---

    def slots(self) -> list[int]:
        """The slots in use, in the order in which their users registered. Those that somebody has ended are not."""
        ended = self._users["flags"] & (layout.USER_ENDED | layout.USER_LEFT) != 0
        used = set(np.flatnonzero((self._users["kind"] != layout.USER_FREE) & ~ended).tolist())
        order = [slot for slot in self._row["order"].tolist() if slot in used]
        return [*dict.fromkeys(order), *sorted(used - set(order))]

    def user(self, slot: int) -> np.void:
        """The row (struct sg_user) of a slot."""
        row: np.void = self._users[slot]
        return row

    def is_alone(self, slot: int) -> bool:
        """Whether the user of a slot is the only one, and nobody has come since it has."""
        others = np.flatnonzero(self._users["kind"] != layout.USER_FREE).tolist()
        return others in ([], [slot]) and int(self._row["epochs"].max()) <= int(self._row["epochs"][slot])

    def is_armed(self, slot: int) -> bool:
        """Whether calls go to the user of a slot."""
        return bool(int(self._row["armed"]) >> slot & 1)

    def has_fault(self, slot: int) -> bool:
        """Whether the handler of a slot's user has died of a signal."""
        return bool(int(self._row["faulted"]) >> slot & 1)

    def has_ended(self, slot: int) -> bool:
        """Whether the user of a slot has been taken off by another controller, and not yet by its own."""
        return bool(int(self._users[slot]["flags"]) & layout.USER_ENDED)

    def losses_of(self, slot: int) -> dict[str, int]:
        """What the user of a slot has lost, over all threads."""
        rows = self._losses(slot)
        return {name: int(rows[name].sum()) for name in rows.dtype.names or ()}

    def _losses(self, slot: int) -> npt.NDArray[np.void]:
        """Those of all threads there have been; looking at the others would take memory for them."""
        known = np.flatnonzero(self.arena.threads["started"])
        found: npt.NDArray[np.void] = self.arena.losses[: int(known.max(initial=-1)) + 1, slot]
        return found

    def functions_of(self, slot: int) -> npt.NDArray[np.int64]:
        """The numbers of the functions that the user of a slot is on."""
        masks = self._functions["users"][:, int(self._row["side"]) & 1]
        found: npt.NDArray[np.int64] = np.flatnonzero(masks >> np.uint64(slot) & np.uint64(1))
        return found

    def callers_of(self, slot: int) -> set[int]:
        """Those of the functions of the user of a slot of which it wants only calls from the executable."""
        found: list[int] = np.flatnonzero(self._functions["callers"] >> np.uint64(slot) & np.uint64(1)).tolist()
        return set(found)

    @property
    def _functions(self) -> npt.NDArray[np.void]:
        return self.arena.functions[: int(self._row["next_function"])]

    def has_recorder(self) -> bool:
        """Whether anybody records."""
        return bool((self.arena.rings["controller_pid"] != 0).any())

    def _is_recorder(self, slot: int) -> bool:
        return int(self._users[slot]["kind"]) == layout.USER_RECORDER

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
        bit = np.uint64(1 << slot)
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
        functions = self.arena.functions
        functions["users"][numbers] |= bit
        if callers is not None and len(callers):
            functions["callers"][callers] |= bit
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
        functions, bit = self.arena.functions, np.uint64(1 << slot)
        functions["callers"][callers] |= bit  # first: entry paths of others may look at both
        functions["users"][numbers] |= bit
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
        counts = Cells(self.arena).read_each(self.arena.functions["cell"][numbers])
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
        both = np.union1d(former, numbers)
        wanted = np.zeros(0, np.int64) if callers is None else np.asarray(callers)
        new = np.setdiff1d(wanted, former)
        now = int(self._row["side"]) & 1
        functions["users"][both, 1 - now] = functions["users"][both, now] & ~bit
        functions["users"][numbers, 1 - now] |= bit
        functions["callers"][new] |= bit
        self._lead(both)  # to a path that looks at the masks, where the two differ
        self._row["side"] = 1 - now
        self.begin_epoch()  # whoever has read the masks of the other side reads again
        functions["users"][both, now] = functions["users"][both, 1 - now]
        functions["callers"][np.setdiff1d(both, wanted)] &= ~bit
        functions["callers"][wanted] |= bit
        self._lead(both)
        if text is not None:
            self._users[slot]["filter"] = text.encode()[:95]

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
        if (self._users["kind"][1 : last + 1] != layout.USER_FREE).all():
            self.settle()
        used = self._users["kind"] != layout.USER_FREE
        behind = int(np.flatnonzero(used[: last + 1]).max(initial=0)) + 1
        if behind <= last:
            return behind
        order = [*range(1, last + 1), *reversed(RECORDER_SLOTS)]
        free: int | None = next((slot for slot in order if not used[slot]), None)
        if free is None:
            raise _all_taken()
        return free

    def _write_user(self, slot: int, user: UserRow) -> None:
        row = self._users[slot]
        for name in row.dtype.names or ():
            row[name] = b"" if name in ("name", "filter") else 0
        for name, value in user.fields.items():
            row[name] = value
        row["controller_pid"] = os.getpid()
        row["controller_start"] = process_start(os.getpid())
        row["controller_thread"] = threading.get_native_id()
        row["name"] = user.name.encode()[:31]
        row["filter"] = user.filter.encode()[:95]
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
        records = self.arena.functions[numbers]
        masks = {name: int(self._row[name]) for name in ("armed", "counters", "measures", "frugal")}
        special = int(self._row["conditional"]) | int(self._row["limited"])
        set_entries(records, self.zones, **masks, recorders=int(self._row["recorders"]) & ~special)
        for name in ("recorders", "enter"):
            self.arena.functions[name][numbers] = records[name]
