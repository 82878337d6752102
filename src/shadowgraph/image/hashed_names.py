"""Finding a dynamic symbol by name as the loader does: DT_GNU_HASH, a filter, buckets and chains.

There is no specification but what linkers and loaders do: a Bloom filter of 64-bit words that answers most questions
with no, then a bucket that names the first symbol of a chain, then the chain of hashes, one a symbol, whose last
has bit 0 set. Symbols that are not exported lie before the first hashed one.
"""

from __future__ import annotations

from functools import lru_cache

from shadowgraph.image.elf import DamagedFile
from shadowgraph.image.image import Image

__all__ = ["HashedNames", "hash_of", "read_hashed_names"]


@lru_cache(maxsize=1 << 16)
def hash_of(name: bytes) -> int:
    """The 32-bit hash of a name."""
    value = 5381
    for byte in name:
        value = value * 33 + byte & 0xFFFFFFFF
    return value


class HashedNames:
    """The table of one image. ``count`` is the number of its dynamic symbols."""

    def __init__(self, image: Image, address: int, count: int) -> None:
        buckets, first, words, shift = (int(word) for word in image.view(address, 16).view("<u4"))
        if not buckets or not words or first > count:
            raise DamagedFile("its hash table is empty or names symbols that do not exist")
        at = address + 16
        self._first, self._shift = first, shift & 31
        self._filter = image.view(at, 8 * words).view("<u8")
        self._buckets = image.view(at + 8 * words, 4 * buckets).view("<u4")
        self._chain = image.view(at + 8 * words + 4 * buckets, 4 * (count - first)).view("<u4")

    def rows(self, name: bytes) -> list[int]:
        """The rows of exported symbols that may have this name: all that do, and others of the same hash."""
        value = hash_of(name)
        word = int(self._filter[value // 64 % len(self._filter)])
        if not word >> (value % 64) & word >> ((value >> self._shift) % 64) & 1:
            return []
        row, found = int(self._buckets[value % len(self._buckets)]), []
        while self._first <= row < self._first + len(self._chain):
            link = int(self._chain[row - self._first])
            if link | 1 == value | 1:
                found.append(row)
            if link & 1:
                break
            row += 1
        return found


def read_hashed_names(image: Image, address: int | None, count: int) -> HashedNames | None:
    """The table at an image address (DT_GNU_HASH); None where there is none, or a damaged one."""
    if address is None:
        return None
    try:
        return HashedNames(image, address, count)
    except DamagedFile:
        return None
