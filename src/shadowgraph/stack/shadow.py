"""The shadow frames of a process, read from outside: what stands behind a slot that holds a site, and if it can be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shadowgraph.agent.zones import SITE_STRIDE, HookedFunction, ZoneRow, ZoneTable
from shadowgraph.stack.frame import Lost
from shadowgraph.stack.snapshot import Snapshot

__all__ = ["ShadowFrame", "ShadowStack"]

# struct sg_frame and its marks in native/agent/state.h; a test holds them equal.
ORIGINAL, TARGET, SLOT, SITE, FUNCTION = 0, 8, 16, 40, 48
SLOT_FREE = (1 << 64) - 1
SLOT_START = (1 << 64) - 2
SLOT_END = 0
LAST_MARK = 15
_MOST_TAILS = 1000  # TAIL_CHAIN in native/agent/frames.c


@dataclass(frozen=True, slots=True)
class ShadowFrame:
    """One frame: ``original`` is 0 for a function reached by a tail call, whose ``target`` counts the tail calls."""

    address: int
    original: int
    target: int
    slot: int
    site: int
    function: int


class ShadowStack:
    """The frames at one moment of the stopped thread."""

    def __init__(self, snapshot: Snapshot, zones: ZoneTable) -> None:
        self.snapshot = snapshot
        self.zones = zones

    def frame(self, address: int) -> ShadowFrame:
        """The frame at an address."""
        words = (self.snapshot.word(address + offset) for offset in (ORIGINAL, TARGET, SLOT, SITE, FUNCTION))
        return ShadowFrame(address, *words)

    def behind_site(self, held: int, slot: int, zone: ZoneRow) -> ShadowFrame:
        """The frame whose site's address ``held`` was found in a slot; Lost where the two do not belong together."""
        if not self.zones.is_site_return(held):
            raise Lost(f"the return address at {slot:#x} leads into the middle of a return site ({held:#x})")
        frame = self.frame(self.zones.frame_of_site(held))
        if frame.slot != slot and not (zone.frame_may_be_free and frame.slot == SLOT_FREE):
            if LAST_MARK < frame.slot < SLOT_START:
                raise Lost(f"the return site in the slot at {slot:#x} belongs to the slot at {frame.slot:#x}")
            raise Lost(f"the return site in the slot at {slot:#x} belongs to no call in flight")
        if not frame.original or not frame.site:
            raise Lost(f"the frame of the return site in the slot at {slot:#x} holds no return address")
        return frame

    def functions_of(self, frame: ShadowFrame) -> list[HookedFunction]:
        """The functions that return through a frame's slot: the one that was called, then those tail-called."""
        found = [self.zones.hooked(frame.function)]
        found += [self.zones.hooked(tail.function) for tail in self._tails(frame)]
        return [function for function in found if function is not None]

    def _tails(self, base: ShadowFrame) -> Iterator[ShadowFrame]:
        """Frames without an original address that share the slot: the next ones, or anywhere once a block ends."""
        address = base.address
        for number in range(1, _MOST_TAILS + 1):
            address += SITE_STRIDE
            if address >= self.zones.frames + SITE_STRIDE * self.zones.frame_count:
                return
            frame = self.frame(address)
            if frame.slot == SLOT_END or not frame.site:
                yield from self._tails_anywhere(base, number)
                return
            if frame.slot != base.slot or frame.original:
                return
            yield frame

    @cached_property
    def _all(self) -> npt.NDArray[np.uint64]:
        """uint64[frames, words in a frame]: all frames, read at most once in a trace, for chains beyond a block."""
        data = self.snapshot.memory.read(self.zones.frames, SITE_STRIDE * self.zones.frame_count)
        return np.frombuffer(data, "<u8").reshape(-1, SITE_STRIDE // 8)

    def _tails_anywhere(self, base: ShadowFrame, first: int) -> Iterator[ShadowFrame]:
        words = self._all
        shares = (words[:, SLOT // 8] == base.slot) & (words[:, ORIGINAL // 8] == 0) & (words[:, SITE // 8] != 0)
        rows = np.flatnonzero(shares & (words[:, TARGET // 8] >= first))
        for row in rows[np.argsort(words[rows, TARGET // 8])].tolist():
            yield self.frame(self.zones.frames + SITE_STRIDE * row)
