"""Places of text whose address is stored in data: function pointers, computed gotos, jump tables.

In an image that may be loaded anywhere, absolute addresses are what relocations speak of; other words cannot be any,
though they may look like it (sizes in the program headers, ranges of characters). In a program at fixed addresses they
are found in every aligned word of data. A short text looks like a small address there (0x656d61 is "ame"), so where a
table is meant, a neighbour must lead to the same function. Tables of 32-bit distances, the jump tables of
position-independent code, begin at an address that the function loads with `lea`; each is followed until an entry
leaves text or the next table begins.

Such a table can name a function's first five bytes: at -Os and -O1 loop heads are not aligned, and a `switch` in a
loop may send a case straight to a head behind a two-byte first instruction. A landing pad cannot lie there: an
unwinder enters it with the frame of the call that threw, at least eight bytes deeper than at the entry (calls keep
the stack aligned), while code reached from the entry by falling through has the entry's depth, and unwind tables know
one depth for each place; and landing pad 0 of a call-site table means "none".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shadowgraph.image.relocations import relocated_pointers
from shadowgraph.patch.owners import NOBODY, Owners
from shadowgraph.patch.text import Marks, Places, Text

__all__ = ["References"]

if TYPE_CHECKING:
    from shadowgraph.image.image import Image

_CHUNK = 1 << 20


class References:
    """What the data of an image, and the addresses that its code loads, say about text; looked through once."""

    def __init__(self, image: Image, text: Text, owners: Owners) -> None:
        self._image, self._text, self._owners = image, text, owners

    def addresses(self, marks: Marks, *, in_tables: bool) -> Places:
        """Marked places whose address stands in an aligned word of data, each once.

        With ``in_tables``, only those that are addresses for sure or stand next to another one in the same function.
        """
        found = [np.zeros(0, np.int64)]
        for places, index, target in self._words:
            hits = np.flatnonzero(marks[target])
            if in_tables and len(hits) and not self._is_relocated:
                hits = hits[self._has_neighbour(places, index[hits])]
            found.append(target[hits])
        return np.unique(np.concatenate(found))

    def immediates(self, marks: Marks) -> Places:
        """Marked places whose 32-bit address stands anywhere in text: what code at fixed addresses may load."""
        dwords = self._text.dwords()
        found = [np.zeros(0, np.int64)]
        for first, last in self._text.ranges:
            for start in range(first, last, _CHUNK):
                numbers = dwords[start : min(start + _CHUNK, last)].view(np.uint32)
                places = numbers - np.uint32(self._text.base & 0xFFFFFFFF)
                places = places[places < self._text.size].astype(np.int64)
                found.append(places[marks[places] != 0])
        return np.unique(np.concatenate(found))

    def table_targets(self, marks: Marks) -> Places:
        """Marked places that a table of 32-bit distances leads to from the function that they belong to, each once.

        A table whose `lea` lies in no function (or in the cold part of one) may lead anywhere.
        """
        target, owner = self._entries
        hits = np.flatnonzero(marks[target])
        target, owner = target[hits], owner[hits]
        return np.unique(target[(owner == NOBODY) | (owner == self._owners.rows_at(target))])

    @cached_property
    def _words(self) -> list[tuple[Places, npt.NDArray[np.int64], Places]]:
        """For each run of words that may be addresses: the words as places, the indexes of those in text, and these."""
        found = []
        for words in self._runs_of_words():
            places = (words - np.uint64(self._text.base)).view(np.int64)
            index = np.flatnonzero(places.view(np.uint64) < np.uint64(self._text.size))
            found.append((places, index, places[index]))
        return found

    @cached_property
    def _is_relocated(self) -> bool:
        return self._image.is_pie and bool(self._image.dynamic)

    def _runs_of_words(self) -> Iterator[npt.NDArray[np.uint64]]:
        if self._is_relocated:
            yield relocated_pointers(self._image)
            return
        for segment in self._image.segments:
            skip = -segment.address % 8
            size = (segment.file_size - skip) // 8 * 8
            if not segment.executable and size > 0:
                yield self._image.view(segment.address + skip, size).view("<u8")

    def _has_neighbour(self, words: Places, index: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether the next word on either side leads into the same function."""
        mine = self._owners.rows_at(words[index])
        result = np.zeros(len(index), np.bool_)
        for distance in (-1, 1):
            other = np.clip(index + distance, 0, len(words) - 1)
            result |= (other != index) & (self._owners.rows_at(words[other]) == mine)
        return result

    @cached_property
    def _entries(self) -> tuple[Places, npt.NDArray[np.int64]]:
        """Where the entries of all tables lead, and the row of the function that loads the table's address."""
        source, table = self._addresses_loaded()
        owner = self._owners.rows_at(source)
        order = np.lexsort((owner, table))
        table, owner = table[order], owner[order]
        first = np.append(True, (np.diff(table) != 0) | (np.diff(owner) != 0))[: len(table)]
        table, owner = table[first], owner[first]
        starts = np.unique(table)
        limit = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, table, side="right")]
        targets, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for segment in self._image.segments:
            if segment.writable or segment.file_size < 4:
                continue
            offset = segment.address - self._text.base
            data = self._image.view(segment.address, segment.file_size)
            chosen = (table >= offset) & (table < offset + segment.file_size)
            end = np.minimum(limit[chosen], offset + segment.file_size)
            for target, of in _follow(data, offset, table[chosen], end, owner[chosen], self._text.size):
                targets.append(target)
                owners.append(of)
        return np.concatenate(targets), np.concatenate(owners)

    def _addresses_loaded(self) -> tuple[Places, Places]:
        """Every place that could be a `lea` of a rip-relative address, and that address."""
        data, dwords = self._text.data, self._text.dwords()
        sources, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for first, last in self._text.ranges:
            source = np.flatnonzero(data[first:last] == 0x8D) + first
            source = source[(data[source + 1] & 0xC7) == 0x05]
            sources.append(source)
            targets.append(source + 6 + dwords[source + 2])
        return np.concatenate(sources), np.concatenate(targets)


def _follow(
    data: npt.NDArray[np.uint8], offset: int, table: Places, end: Places, owner: npt.NDArray[np.int64], size: int
) -> Iterator[tuple[Places, npt.NDArray[np.int64]]]:
    """The n-th entries of all tables that have so many, for n = 0, 1, …: where they lead, and whose table it is."""
    dwords = np.ndarray((len(data) - 3,), np.dtype("<i4"), data, strides=(1,))
    entry = table.copy()
    while len(entry):
        here = entry + 4 <= end
        table, entry, end, owner = table[here], entry[here], end[here], owner[here]
        target = table + dwords[entry - offset]
        alive = (target >= 0) & (target < size)
        table, entry, end, owner = table[alive], entry[alive] + 4, end[alive], owner[alive]
        yield target[alive], owner
