"""The shadow frames of a process, read from outside: what stands behind a slot that holds a site, and if it can be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shadowgraph.agent.zones import HookedFunction, ZoneRow, ZoneTable
from shadowgraph.stack.frame import Lost
from shadowgraph.stack.snapshot import Snapshot

__all__ = ["ShadowFrame", "ShadowStack"]

# struct sg_frame and its marks in native/agent/state.h; a test holds them equal.
ORIGINAL, TARGET, SLOT, SITE, FUNCTION = 0, 8, 16, 40, 48
SLOT_FREE = (1 << 64) - 1
SLOT_START = (1 << 64) - 2
LAST_MARK = 15
_MOST_TAILS = 2000  # more than TAIL_CHAIN in native/agent/frames.c


@dataclass(frozen=True, slots=True)
class ShadowFrame:
    """One frame. ``original`` is 0 for a function that was reached by a tail call.

    ``target`` of such a frame is the one that it was tail-called from; the frame that owns the slot names the newest.
    """

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
        return frame

    def functions_of(self, frame: ShadowFrame) -> list[HookedFunction]:
        """The functions that return through a frame's slot: the one that was called, then those tail-called."""
        tails = [self.zones.hooked(tail.function) for tail in self._newest_tails(frame)]
        found = [self.zones.hooked(frame.function), *reversed(tails)]
        return [function for function in found if function is not None]

    def _newest_tails(self, owner: ShadowFrame) -> Iterator[ShadowFrame]:
        """Frames of functions that were reached by tail calls, newest first: the owner of the slot names the newest."""
        at = owner.target
        for _ in range(_MOST_TAILS):
            if at == owner.address or not self.zones.is_frame(at):
                return
            frame = self.frame(at)
            if frame.slot != owner.slot or frame.original:
                return
            yield frame
            at = frame.target
