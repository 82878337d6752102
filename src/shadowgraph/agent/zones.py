"""Where a thread may stand between a call and its function, and between a return and its caller (R25).

One explicit table that the unwinder, the patcher and the tests share. A thread in one of these zones runs code that the
program does not have; each zone's row says which instruction of the program that stands for, and where the return
address of the call is to be found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.hooks import Hooks
from shadowgraph.patch import TRAMPOLINE_SIZE, PatchKind

__all__ = ["SITE_RETURN", "SITE_STRIDE", "ZONES", "HookedFunction", "Place", "Standing", "Zone", "ZoneRow", "ZoneTable"]

# native/agent/state.h: SG_STRIDE, SG_SITE_RETURN; a test holds them equal.
SITE_STRIDE = 64
SITE_RETURN = 11


class Zone(Enum):
    """The zones, in the order in which a call passes through them."""

    OUTSIDE = "code of the program"
    JUMP = "a jump that hooks a function"
    HEAD = "the head of a thunk, or the trampoline that leads there"
    ENTER = "entry path"
    ENTER_ASIDE = "entry path, rare cases"
    SITE_CALLING = "return site, before its call"
    BODY = "displaced instructions in a thunk"
    SITE_RETURNED = "return site, behind its call"
    LEAVE = "return path"
    LEAVE_ASIDE = "return path, rare cases"
    AGENT = "other code of the agent"


class Standing(Enum):
    """Where the program is while one of its threads is in a zone."""

    ORIGINAL = "at an instruction of its own, which a thunk's pc map names"
    ENTRY = "at the entry of the hooked function"
    RETURN = "back from the function, at the return address"
    CALLED = "where the zone says that this code was called from"


@dataclass(frozen=True, slots=True)
class ZoneRow:
    """What holds in a zone.

    ``standing``           where the program is
    ``own_unwind``         the agent's unwind information has a row for each pc; else that of the original instruction
                           is right
    ``caller_in_slot``     the slot may hold the return address itself
    ``site_in_slot``       the slot may hold a site's, and the return address is in the frame of that site
    ``frame_may_be_free``  that frame may be marked free already: the return address is still there
    """

    standing: Standing
    own_unwind: bool
    caller_in_slot: bool
    site_in_slot: bool
    frame_may_be_free: bool = False


# Up to the entry paths a slot holds a site where the function was reached by a tail call. The return path puts the
# original return address back into the slot half-way.
ZONES: Mapping[Zone, ZoneRow] = {
    Zone.OUTSIDE: ZoneRow(Standing.ORIGINAL, False, True, True),
    Zone.JUMP: ZoneRow(Standing.ENTRY, False, True, True),
    Zone.HEAD: ZoneRow(Standing.ENTRY, False, True, True),
    Zone.ENTER: ZoneRow(Standing.ENTRY, True, True, True),
    Zone.ENTER_ASIDE: ZoneRow(Standing.ENTRY, True, True, True),
    Zone.SITE_CALLING: ZoneRow(Standing.ENTRY, True, True, False),
    Zone.BODY: ZoneRow(Standing.ORIGINAL, False, True, True),
    Zone.SITE_RETURNED: ZoneRow(Standing.RETURN, True, False, True),
    Zone.LEAVE: ZoneRow(Standing.RETURN, True, True, True, frame_may_be_free=True),
    Zone.LEAVE_ASIDE: ZoneRow(Standing.RETURN, True, True, True, frame_may_be_free=True),
    Zone.AGENT: ZoneRow(Standing.CALLED, True, True, False),
}


@dataclass(frozen=True, slots=True)
class HookedFunction:
    """A hooked function: row ``index`` of the records of ``hooks``."""

    hooks: Hooks
    index: int

    @property
    def row(self) -> int:
        """Its row in the module's function table and plan."""
        return int(self.hooks.thunks.chosen[self.index])

    @property
    def record(self) -> int:
        """The address of its function record."""
        records = self.hooks.thunks.records
        return self.hooks.table + records.dtype.itemsize * int(records["id"][self.index])

    @property
    def entry(self) -> int:
        """The address of its first displaced instruction: a call of it stands there until that one has run."""
        rows = self.hooks.thunks.pc_map
        place = int(np.searchsorted(rows["thunk"], self.hooks.thunks.body[self.index]))
        return int(rows["original"][place])


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread stands.

    ``original``  the instruction of the program that a pc in a jump or thunk stands for; elsewhere the pc itself
    ``pushed``    bytes of a displaced call's return address that are on the stack already
    ``function``  the hooked function, for places in its jumps and its thunk
    """

    zone: Zone
    original: int
    pushed: int = 0
    function: HookedFunction | None = None


class ZoneTable:
    """The zones of one process.

    ``agent`` has the addresses that the agent has told (struct sg_settings); ``text`` is its executable memory.
    """

    def __init__(self, agent: Mapping[str, int], text: tuple[int, int], hooks: Sequence[Hooks]) -> None:
        self.sites = agent["sites"]
        self.frames = agent["frames"]
        self.frame_count = agent["frame_count"]
        self.ranges = (
            (agent["enter"], agent["enter_end"], Zone.ENTER),
            (agent["enter_aside"], agent["enter_aside_end"], Zone.ENTER_ASIDE),
            (agent["leave"], agent["leave_end"], Zone.LEAVE),
            (agent["leave_aside"], agent["leave_aside_end"], Zone.LEAVE_ASIDE),
        )
        self.text = text
        self._blocks = sorted(hooks, key=lambda block: block.thunk_base)
        self._bases = [block.thunk_base for block in self._blocks]
        self.entries_aside = agent["enter_from_caller"]  # where those paths begin whose end is a call of C code
        self._table = agent["functions"]

    def place(self, pc: int) -> Place:
        """The zone of a pc and what it stands for."""
        if self.is_agent_text(pc):
            return Place(self._agent_zone(pc), pc)
        return self._in_thunk(pc) or self._in_jump(pc) or self._in_trampoline(pc) or Place(Zone.OUTSIDE, pc)

    def range_of(self, zone: Zone) -> tuple[int, int]:
        """Where one of the agent's paths begins and ends."""
        return next((low, high) for low, high, known in self.ranges if known is zone)

    def is_agent_text(self, address: int) -> bool:
        """Whether an address is one of the agent's code."""
        return self.text[0] <= address < self.text[1]

    def is_site_return(self, address: int) -> bool:
        """Whether an address is that of a site, as a slot holds it: the one behind the site's call."""
        distance = address - self.sites
        return 0 <= distance < SITE_STRIDE * self.frame_count and distance % SITE_STRIDE == SITE_RETURN

    def is_frame(self, address: int) -> bool:
        """Whether a shadow frame begins at an address."""
        distance = address - self.frames
        return 0 <= distance < SITE_STRIDE * self.frame_count and distance % SITE_STRIDE == 0

    def frame_of_site(self, address: int) -> int:
        """The address of the frame of a site, by any address within the site."""
        return self.frames + (address - self.sites) // SITE_STRIDE * SITE_STRIDE

    def hooked(self, record: int) -> HookedFunction | None:
        """The function whose record lies at an address."""
        number, rest = divmod(record - self._table, layout.FUNCTION_RECORD_SIZE)
        return None if rest else self._by_id.get(number)

    @cached_property
    def _by_id(self) -> dict[int, HookedFunction]:
        return {
            number: HookedFunction(block, index)
            for block in self._blocks
            for index, number in enumerate(block.thunks.records["id"].tolist())
        }

    def copy_of(self, pc: int) -> int | None:
        """Where a thread that stands at ``pc`` must go on before the bytes there change, or are given up.

        None where it may stay: no displaced instruction begins there, or it is the first one of its function, which
        begins with the jump or with itself.
        """
        originals, copies = self._copies
        index = int(np.searchsorted(originals, np.uint64(pc)))
        return int(copies[index]) if index < len(originals) and int(originals[index]) == pc else None

    def _agent_zone(self, pc: int) -> Zone:
        for low, high, zone in self.ranges:
            if low <= pc < high:
                return zone
        if 0 <= pc - self.sites < SITE_STRIDE * self.frame_count:
            behind = (pc - self.sites) % SITE_STRIDE >= SITE_RETURN
            return Zone.SITE_RETURNED if behind else Zone.SITE_CALLING
        return Zone.AGENT

    def _in_thunk(self, pc: int) -> Place | None:
        index = bisect_right(self._bases, pc) - 1
        if index < 0:
            return None
        block = self._blocks[index]
        if pc >= block.thunk_base + len(block.thunks.code):
            return None
        rows = block.thunks.pc_map
        row = int(np.searchsorted(rows["thunk"], np.uint64(pc), side="right")) - 1
        if row < 0:
            return None
        found = rows[row]
        function = HookedFunction(block, int(found["function"]))
        zone = Zone.HEAD if pc < int(block.thunks.records["body"][function.index]) else Zone.BODY
        return Place(zone, int(found["original"]), int(found["pushed"]), function)

    def _in_jump(self, pc: int) -> Place | None:
        addresses, sizes, blocks, owners = self._jumps
        index = int(np.searchsorted(addresses, np.uint64(pc), side="right")) - 1
        if index < 0 or pc - int(addresses[index]) >= int(sizes[index]):
            return None
        function = HookedFunction(self._blocks[int(blocks[index])], int(owners[index]))
        at_jump = pc == int(addresses[index])
        return Place(Zone.JUMP, function.entry if at_jump else pc, 0, function)

    def _in_trampoline(self, pc: int) -> Place | None:
        starts, functions = self._trampolines
        index = bisect_right(starts, pc) - 1
        if index < 0 or pc - starts[index] >= TRAMPOLINE_SIZE:
            return None
        return Place(Zone.HEAD, functions[index].entry, 0, functions[index])

    @cached_property
    def _trampolines(self) -> tuple[list[int], list[HookedFunction]]:
        """All trampolines, by address, and the functions whose thunks they lead to."""
        found = [
            (int(block.thunks.trampoline[index]), HookedFunction(block, index))
            for block in self._blocks
            for index in np.flatnonzero(block.thunks.trampoline).tolist()
        ]
        found.sort(key=lambda entry: entry[0])
        return [start for start, _ in found], [function for _, function in found]

    @cached_property
    def _jumps(self) -> tuple[npt.NDArray[np.uint64], ...]:
        """All jumps that hook functions, by address: address, size, index into the blocks, index of the function.

        What else is patched (displacements of other jumps, calls that are made from their place) stands for itself.
        """
        parts = []
        for number, block in enumerate(self._blocks):
            thunks = block.thunks
            address, size, owner = (
                column[thunks.kind == PatchKind.JUMP]
                for column in (thunks.patch_address, thunks.patch_size, thunks.patched)
            )
            parts.append(
                (address, size.astype(np.uint64), np.full(len(owner), number, np.uint64), owner.astype(np.uint64))
            )
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.zeros(0, np.uint64)] * 4
        order = np.argsort(columns[0], kind="stable")
        return tuple(column[order] for column in columns)

    @cached_property
    def _copies(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Displaced instructions but the first of each function, by address, and where their copies are."""
        originals, copies = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
        for block in self._blocks:
            rows = block.thunks.pc_map
            first = rows["thunk"] == block.thunks.body[rows["function"]]
            kept = rows[rows["starts"] & ~first]
            originals.append(kept["original"])
            copies.append(kept["thunk"])
        original, copy = np.concatenate(originals), np.concatenate(copies)
        order = np.argsort(original, kind="stable")
        return original[order], copy[order]
