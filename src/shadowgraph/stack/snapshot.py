"""Memory of a stopped thread, read through a cache: one trace sees one moment, and asks the kernel seldom."""

from __future__ import annotations

from shadowgraph.stack.frame import Lost
from shadowgraph.target.memory import Memory

__all__ = ["Snapshot"]

_PAGE = 4096
_USER_END = 1 << 47


class Snapshot:
    """Reads what is on the pages that have been asked for, as they were when they were first asked for."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._pages: dict[int, bytes] = {}

    def word(self, address: int, size: int = 8) -> int:
        """An unsigned number of ``size`` bytes; Lost where there is no memory."""
        return int.from_bytes(self.block(address, size), "little")

    def block(self, address: int, size: int) -> bytes:
        """Exactly so many bytes; Lost where there is no memory."""
        start = address % _PAGE
        if start + size <= _PAGE:
            return self._page(address - start)[start : start + size]
        first = self._page(address - start)[start:]
        return first + self.block(address - start + _PAGE, size - len(first))

    def _page(self, start: int) -> bytes:
        page = self._pages.get(start)
        if page is None:
            try:
                if not 0 <= start < _USER_END:
                    raise OSError
                page = self.memory.read(start, _PAGE)
            except OSError:
                raise Lost(f"there is no memory to read at {start:#x}") from None
            self._pages[start] = page
        return page
