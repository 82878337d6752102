"""The depths of calls that were recorded while others used the process, too: those of one recorder's own calls."""

from __future__ import annotations

from shadowgraph.trace.columns import address, library
from shadowgraph.trace.sorting import SortedBlock

__all__ = ["Depths"]


class Depths:
    """Closes the gaps that calls of other users have left in the depths, thread by thread."""

    def __init__(self) -> None:
        self._native = library()
        self._depths = self._native.sg_depths_create()
        if not self._depths:
            raise MemoryError

    def __del__(self) -> None:
        if self._depths:
            self._native.sg_depths_destroy(self._depths)

    def clear(self) -> None:
        """Another thread begins."""
        self._native.sg_depths_clear(self._depths)

    def close_gaps(self, block: SortedBlock) -> None:
        """Put the depths of the thread's next block right."""
        if not self._native.sg_depths_close(self._depths, address(block.calls), address(block.order), block.count):
            raise MemoryError
