"""Symbol tables as numpy columns, with names that stay bytes in the string table until somebody asks for one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from shadowgraph.image import elf
from shadowgraph.image.elf import Bytes, DamagedFile, ElfFile, Section
from shadowgraph.image.image import Image

__all__ = ["SymbolTable", "dynamic_symbols", "section_symbols"]

STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_TLS, STT_GNU_IFUNC = 0, 1, 2, 6, 10
STB_LOCAL, STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE = 0, 1, 2, 10
SHN_UNDEF, SHN_ABS = 0, 0xFFF1
DT_HASH, DT_SYMTAB, DT_GNU_HASH = 4, 6, 0x6FFFFEF5

SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


class SymbolTable:
    """The rows of one ELF symbol table and its strings. ``rows`` has the file's fields; see :data:`SYMBOL`."""

    def __init__(self, rows: npt.NDArray[np.void], strings: Bytes) -> None:
        self.rows = rows
        self.strings = strings
        self._text = strings.tobytes() + b"\0"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def kind(self) -> npt.NDArray[np.uint8]:
        """uint8[n]: STT_… of each symbol."""
        return (self.rows["info"] & 15).astype(np.uint8)

    @property
    def binding(self) -> npt.NDArray[np.uint8]:
        """uint8[n]: STB_… of each symbol."""
        return (self.rows["info"] >> 4).astype(np.uint8)

    def raw_name(self, index: int) -> bytes:
        """The name of a row as the file has it; empty where the name's offset is out of range."""
        start = int(self.rows["name"][index])
        return self._text[start : self._text.find(b"\0", start)] if start < len(self._text) else b""

    def raw_names(self, indexes: Iterable[int]) -> list[bytes]:
        """The names of many rows."""
        text, starts = self._text, self.rows["name"].tolist()
        find, size = text.find, len(text)
        return [text[starts[i] : find(b"\0", starts[i])] if starts[i] < size else b"" for i in indexes]

    def find_name(self, name: bytes) -> npt.NDArray[np.int64]:
        """The rows of that very name (not ""), with or without a version behind it (``name@VERSION``).

        Found by a search for its bytes in the string table, so that no other name need be decoded.
        """
        end = len(name)
        if not end:
            return np.zeros(0, np.int64)
        offsets = [at for at in _occurrences(self._text, name) if self._text[at + end : at + end + 1] in b"\0@"]
        found = np.zeros(len(self.rows), np.bool_)
        for offset in offsets:  # few, mostly one or none
            found |= self.rows["name"] == offset
        return np.flatnonzero(found)

    def names_with(self, text: bytes, before: re.Pattern[bytes], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Positions in ``rows`` of the names that hold ``text`` with a match of ``before`` ending right before it.

        A search for literal bytes through all strings at once, so that no name need be decoded.
        """
        hits = [at for at in _occurrences(self._text, text) if before.search(self._text[max(at - 16, 0) : at])]
        found = np.array(hits, np.int64)
        first = np.append(found, len(self._text) + 1)[np.searchsorted(found, self.rows["name"][rows])]
        return np.flatnonzero(first < self.name_ends(rows))

    def name_ends(self, indexes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """int64[len(indexes)]: the offset of the NUL behind each name; ``len(strings)`` for an unfinished last one."""
        nul = np.append(np.flatnonzero(self.strings == 0), len(self.strings))
        start = np.minimum(self.rows["name"][indexes].astype(np.int64), len(self.strings))
        ends: npt.NDArray[np.int64] = nul[np.searchsorted(nul, start)]
        return ends


# Read for functions, imports and every look-up of an export alike.
_DYNAMIC: WeakKeyDictionary[Image, SymbolTable | None] = WeakKeyDictionary()


def section_symbols(file: ElfFile, kind: int) -> SymbolTable | None:
    """The table of a section type (SHT_SYMTAB or SHT_DYNSYM), or None; a damaged one is remarked upon and left out."""
    section = file.section_of_type(kind)
    if section is None or section.size == 0:
        return None
    try:
        return SymbolTable(_rows(file.content(section)), file.content(_linked(file, section)))
    except DamagedFile as problem:
        file.remarks.append(f"The symbol table {section.name} is unusable: {problem}.")
        return None


def dynamic_symbols(image: Image) -> SymbolTable | None:
    """The dynamic linker's symbols (DT_SYMTAB), read once; None if there are none."""
    if image not in _DYNAMIC:
        _DYNAMIC[image] = _read_dynamic_symbols(image)
    return _DYNAMIC[image]


def _read_dynamic_symbols(image: Image) -> SymbolTable | None:
    """How many symbols there are, the section or the hash tables tell."""
    address = image.dynamic_value(DT_SYMTAB)
    if address is None:
        return section_symbols(image.elf, elf.SHT_DYNSYM)
    try:
        count = _dynamic_count(image)
        return SymbolTable(_rows(image.view(address, count * SYMBOL.itemsize)), image.dynamic_strings)
    except DamagedFile as problem:
        image.elf.remarks.append(f"The dynamic symbols are unusable: {problem}.")
        return None


def _occurrences(text: bytes, wanted: bytes) -> list[int]:
    found, at = [], text.find(wanted)
    while at >= 0:
        found.append(at)
        at = text.find(wanted, at + 1)
    return found


def _rows(data: Bytes) -> npt.NDArray[np.void]:
    whole = len(data) // SYMBOL.itemsize * SYMBOL.itemsize
    return np.frombuffer(data[:whole], SYMBOL)


def _linked(file: ElfFile, section: Section) -> Section:
    if section.link >= len(file.sections):
        raise DamagedFile("it names a string table that does not exist")
    return file.sections[section.link]


def _dynamic_count(image: Image) -> int:
    section = image.elf.section_of_type(elf.SHT_DYNSYM)
    if section is not None:
        return section.size // SYMBOL.itemsize
    old = image.dynamic_value(DT_HASH)
    if old is not None:
        return int(image.view(old, 8).view("<u4")[1])
    new = image.dynamic_value(DT_GNU_HASH)
    return _gnu_hash_count(image, new) if new is not None else 0


def _gnu_hash_count(image: Image, address: int) -> int:
    """DT_GNU_HASH does not say how many symbols there are: the last chain's last entry is the last symbol."""
    buckets, first, bloom, _ = (int(word) for word in image.view(address, 16).view("<u4"))
    table = image.view(address + 16 + 8 * bloom, 4 * buckets).view("<u4")
    last = int(table.max()) if buckets else 0
    if last < first:
        return first
    chain = address + 16 + 8 * bloom + 4 * buckets
    while not int(image.view(chain + 4 * (last - first), 4).view("<u4")[0]) & 1:
        last += 1
    return last + 1
