"""The code of an image as one array. A place in it is an address minus ``base``, so that distances are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from shadowgraph.image.image import Image

__all__ = ["Marks", "Places", "Text"]

Places: TypeAlias = npt.NDArray[np.int64]
# uint8[len(text.data)]: not zero where something about a place is of interest.
Marks: TypeAlias = npt.NDArray[np.uint8]

# Room behind the last byte, so that a window or a displacement may be gathered without looking where the text ends.
_MARGIN = 64


class Text:
    """``data`` is uint8[last address of text − base + margin]; what lies between the pieces reads as zero.

    ``ranges`` are the pieces as (first, one past the last) places. The linker's PLT stubs are left out of them: these
    jump to each other and through the GOT only.
    """

    def __init__(self, image: Image) -> None:
        pieces = image.text
        self.base = min((piece.address for piece in pieces), default=0)
        self.size = max((piece.end for piece in pieces), default=0) - self.base
        # Zeroed by the kernel when touched: a hole between two pieces costs nothing.
        self.data = np.zeros(self.size + _MARGIN, np.uint8)
        self.ranges: list[tuple[int, int]] = []
        for piece in pieces:
            first = piece.address - self.base
            self.data[first : first + len(piece.data)] = piece.data
            if not piece.is_plt:
                self.ranges.append((first, first + len(piece.data)))

    def places(self, addresses: npt.NDArray[np.uint64]) -> Places:
        """Place of each address, −1 for those that lie in no piece."""
        places = addresses.astype(np.int64) - self.base
        return np.where(self.room(places) > 0, places, -1)

    def room(self, places: Places) -> Places:
        """How many bytes of its piece lie at and behind each place; 0 outside of all pieces."""
        room = np.zeros(len(places), np.int64)
        for first, last in self.ranges:
            inside = (places >= first) & (places < last)
            room[inside] = last - places[inside]
        return room

    def marks(self) -> Marks:
        """As many zeros as there are places."""
        return np.zeros(len(self.data), np.uint8)

    def dwords(self) -> npt.NDArray[np.int32]:
        """A view of the signed 32-bit number at every place, aligned or not."""
        return np.ndarray((len(self.data) - 3,), np.dtype("<i4"), self.data, strides=(1,))

    def bytes_at(self, place: int, size: int) -> bytes:
        """``size`` bytes from a place on."""
        return self.data[place : place + size].tobytes()
