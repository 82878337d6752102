"""What the dynamic linker writes into an image when it has chosen its address: relocations of all three forms."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shadowgraph.image.elf import DamagedFile, gather
from shadowgraph.image.image import Image

__all__ = ["read_relocations", "relocated_pointers"]

DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_JMPREL, DT_RELRSZ, DT_RELR = 2, 7, 8, 23, 35, 36
R_X86_64_RELATIVE, R_X86_64_IRELATIVE = 8, 37

_RELA = np.dtype([("address", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_RELR = np.dtype([("word", "<u8")])
# A bitmap of DT_RELR has a bit for each of so many words; the lowest bit says that it is one.
_BITS = 63


def read_relocations(image: Image) -> npt.NDArray[np.void]:
    """All entries of DT_JMPREL and DT_RELA: address, kind, symbol, addend."""
    tables = [_table(image, DT_JMPREL, DT_PLTRELSZ, _RELA), _table(image, DT_RELA, DT_RELASZ, _RELA)]
    return np.concatenate(tables)


def relocated_pointers(image: Image) -> npt.NDArray[np.uint64]:
    """uint64[n]: the image addresses that the linker wrote into data as pointers, in the order of where they stand.

    Of an image that may be loaded anywhere these are all: a word that is not relocated cannot be an address.
    """
    entries = read_relocations(image)
    entries = entries[np.isin(entries["kind"], (R_X86_64_RELATIVE, R_X86_64_IRELATIVE))]
    packed = _packed_places(_table(image, DT_RELR, DT_RELRSZ, _RELR)["word"])
    places = np.concatenate([entries["address"], packed])
    pointers = np.concatenate([entries["addend"].astype(np.uint64), _words_at(image, packed)])
    ordered: npt.NDArray[np.uint64] = pointers[np.argsort(places, kind="stable")]
    return ordered


def _table(image: Image, address_tag: int, size_tag: int, row: np.dtype[np.void]) -> npt.NDArray[np.void]:
    address, size = image.dynamic_value(address_tag), image.dynamic_value(size_tag)
    if address is None or not size:
        return np.zeros(0, row)
    try:
        return np.frombuffer(image.view(address, size // row.itemsize * row.itemsize), row)
    except DamagedFile as problem:
        image.elf.remarks.append(f"A relocation table is unusable: {problem}.")
        return np.zeros(0, row)


def _packed_places(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Where the words lie that a DT_RELR table speaks of (gABI, "Relative relocations").

    An even word is the address of one; an odd one has a bit for each of the 63 words behind the last one spoken of.
    """
    found, following = list[npt.NDArray[np.uint64]](), 0
    bits = np.arange(1, _BITS + 1, dtype=np.uint64)
    for word in words.tolist():
        if word % 2 == 0:
            found.append(np.array([word], np.uint64))
            following = word + 8
        else:
            places = np.uint64(following) + np.uint64(8) * (bits - np.uint64(1))
            found.append(places[(np.uint64(word) >> bits) & np.uint64(1) != 0])
            following += 8 * _BITS
    return np.concatenate(found) if found else np.zeros(0, np.uint64)


def _words_at(image: Image, places: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The word at each place; 0 where the file has none."""
    found = np.zeros(len(places), np.uint64)
    for segment in image.segments:
        data = image.rest_of_segment(segment.address)
        offsets = places.astype(np.int64) - segment.address
        inside = (offsets >= 0) & (offsets + 8 <= len(data))
        found[inside] = gather(data, offsets[inside], 8)
    return found
