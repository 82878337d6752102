"""Where the threads of a stopped process stand, below signal handlers too, and moving them out of the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.agent.kept import Moves
from shadowgraph.agent.zones import SITE_RETURN, SITE_STRIDE
from shadowgraph.target.memory import Memory, read_mappings
from shadowgraph.target.signal_frames import SavedContext, find_restorers, saved_contexts
from shadowgraph.target.stopping import StoppedProcess

__all__ = ["Restorers", "Standing"]

_ORIGINAL = 0  # struct sg_frame


@dataclass(frozen=True)
class Restorers:
    """Where signal handlers return to. Found beforehand, for it takes time to look through all code.

    ``zones`` are the agent's: a traced handler returns to a site first. Empty where there is no agent yet.
    """

    addresses: list[int]
    zones: Mapping[str, int]

    @classmethod
    def of(cls, memory: Memory, zones: Mapping[str, int]) -> Restorers:
        """Those of a process; it may run."""
        return cls(find_restorers(memory, read_mappings(memory.pid)), zones)


class Standing:
    """All places where a stopped process's threads go on some time: their own, and those saved by signals."""

    def __init__(self, stop: StoppedProcess, memory: Memory, restorers: Restorers) -> None:
        self._stop = stop
        self._memory = memory
        self._restorers = restorers
        mappings = read_mappings(stop.pid)
        also = self._stands_for_restorer if restorers.zones.get("sites") else None
        self._saved: dict[int, SavedContext] = {}
        for registers in stop.registers.values():
            for context in saved_contexts(memory, mappings, registers.rsp, restorers.addresses, also):
                self._saved[context.rip_at] = context

    def places(self) -> Iterator[int]:
        """The addresses of all of them."""
        yield from (registers.rip for registers in self._stop.registers.values())
        yield from (context.rip for context in self._saved.values())

    def move(self, moves: list[Moves]) -> int:
        """Let all that stand at places that are to change go on elsewhere; how many there were."""
        count = 0
        for tid, registers in list(self._stop.registers.items()):
            to = _target(moves, registers.rip)
            if to is not None:
                changed = registers.copy()
                changed.rip, changed.rsp = to[0], registers.rsp + to[1]
                self._stop.change(tid, changed)
                count += 1
        for context in self._saved.values():
            to = _target(moves, context.rip)
            if to is not None:
                self._memory.write(context.rip_at, to[0].to_bytes(8, "little"))
                self._memory.write(context.rsp_at, (context.rsp + to[1]).to_bytes(8, "little"))
                count += 1
        return count

    def _stands_for_restorer(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which words are those of sites whose calls return to a restorer in the end."""
        zones = self._restorers.zones
        distance = words - np.uint64(zones["sites"])
        is_site = distance % SITE_STRIDE == SITE_RETURN
        hits: npt.NDArray[np.bool_] = is_site & (distance < np.uint64(SITE_STRIDE * zones["frame_count"]))
        for place in np.flatnonzero(hits).tolist():
            frame = zones["frames"] + int(distance[place]) // SITE_STRIDE * SITE_STRIDE
            hits[place] = self._memory.read_word(frame + _ORIGINAL) in self._restorers.addresses
        return hits


def _target(moves: list[Moves], pc: int) -> tuple[int, int] | None:
    for some in moves:
        found = some.of(pc)
        if found is not None:
            return found
    return None
