"""Events: records that handlers give to Python, through a ring that all threads of the process share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.errors import UsageError

__all__ = ["EventRing", "event_dtype"]

_SIZE_MASK = 0xFFFF_FFFF


def event_dtype(fields: object) -> np.dtype[np.void]:
    """The dtype of a record: what numpy takes for a structured one, say [("fd", "i4"), ("size", "u8")].

    Fields are aligned as those of a struct in C, unless it is a dtype already.
    """
    try:
        dtype: np.dtype[np.void] = fields if isinstance(fields, np.dtype) else np.dtype(fields, align=True)  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise UsageError(f"events: {fields!r} describes no record: {error}") from None
    if dtype.names is None:
        raise UsageError("events: a structured record is needed, for example [('fd', 'i4'), ('size', 'u8')]")
    if dtype.itemsize > layout.EVENT_LIMIT:
        raise UsageError(f"events: a record may have {layout.EVENT_LIMIT} bytes at most, not {dtype.itemsize}")
    return dtype


class EventRing:
    """The ring at a place in the pool of an arena (struct sg_event_ring)."""

    def __init__(self, arena: Arena, at: int, size: int) -> None:
        start = at + layout.event_ring_dtype.itemsize
        self._head = arena.pool[at:start].view(layout.event_ring_dtype)[0]
        self._words = arena.pool[start : start + size].view(np.uint64)
        self._size = size
        self.of_other_sizes = 0
        self.other_size = 0

    @staticmethod
    def space(size: int) -> int:
        """Bytes of the pool for a ring of so many bytes."""
        return layout.event_ring_dtype.itemsize + size

    def begin(self) -> None:
        """Make it empty, before any thread knows of it."""
        self._words[:] = 0
        for name in ("head", "tail", "dropped"):
            self._head[name] = 0
        self._head["size"] = self._size

    @property
    def dropped(self) -> int:
        """Records for which there was no room."""
        return int(self._head["dropped"])

    def take(self, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """The records that are ready, in the order of their reservation, each with time (ticks), thread and function.

        At most a ring full of them, so that it ends however fast they come.
        A record that is shorter than ``dtype`` is filled up with zeros, a longer one cut. ``of_other_sizes`` counts
        both, and ``other_size`` is that of the last of them.
        """
        rows: list[tuple[int, int, int, bytes]] = []
        tail = int(self._head["tail"])
        end = tail + self._size
        while tail < end:
            at = tail % self._size // 8
            head = int(self._words[at])
            if not head & layout.EVENT_READY:
                break
            size = head & _SIZE_MASK
            taken = size if head & layout.EVENT_SKIP else layout.EVENT_HEAD + (size + 7) // 8 * 8
            if not head & layout.EVENT_SKIP:
                words = self._words[at : at + taken // 8]
                place = int(words[2])
                rows.append((int(words[1]), place >> 32, place & _SIZE_MASK, words[3:].tobytes()[:size]))
            self._words[at : at + taken // 8] = 0
            tail += taken
            self._head["tail"] = tail
        for row in rows:
            if not dtype.itemsize <= len(row[3]) < dtype.itemsize + 8:  # a struct may be padded at its end
                self.of_other_sizes, self.other_size = self.of_other_sizes + 1, len(row[3])
        return _table(rows, dtype)


def _table(rows: Sequence[tuple[int, int, int, bytes]], dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    own = [("time", "<u8"), ("thread", "<u4"), ("function", "<u4")]
    names = dtype.names or ()
    table = np.zeros(len(rows), np.dtype([*own, *((name, dtype[name]) for name in names)]))
    if not rows:
        return table
    table["time"] = [row[0] for row in rows]
    table["thread"] = [row[1] for row in rows]
    table["function"] = [row[2] for row in rows]
    if not dtype.itemsize:
        return table
    content = b"".join(data[: dtype.itemsize].ljust(dtype.itemsize, b"\0") for _, _, _, data in rows)
    records = np.frombuffer(content, dtype)
    for name in names:
        table[name] = records[name]
    return table
