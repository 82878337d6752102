"""The functions that an image imports: names, versions, and the slots through which they are called."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from shadowgraph.image import elf
from shadowgraph.image.elf import Bytes, DamagedFile
from shadowgraph.image.hashed_names import HashedNames, read_hashed_names
from shadowgraph.image.image import Image
from shadowgraph.image.relocations import read_relocations
from shadowgraph.image.symbols import (
    DT_GNU_HASH,
    SHN_UNDEF,
    STB_LOCAL,
    STB_WEAK,
    STT_FUNC,
    STT_GNU_IFUNC,
    STT_NOTYPE,
    SymbolTable,
    dynamic_symbols,
)

__all__ = ["Import", "SlotKind", "lookup_dynamic", "read_imports"]

DT_VERSYM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT = 1, 6, 7
VERSION_HIDDEN = 0x8000

_HASHED: WeakKeyDictionary[Image, HashedNames | None] = WeakKeyDictionary()


class SlotKind(Enum):
    """What a slot is for: JUMP_SLOT a call through the PLT, GLOB_DAT a call or address through the GOT (-fno-plt),
    POINTER a function's address in data (a table of functions, a callback).
    """

    JUMP_SLOT = R_X86_64_JUMP_SLOT
    GLOB_DAT = R_X86_64_GLOB_DAT
    POINTER = R_X86_64_64


@dataclass(frozen=True, slots=True)
class Import:
    """One slot that the dynamic linker fills with a function of another image.

    ``slot`` is the slot's image address. ``version`` and ``provider``, the library that has it, are ""
    where the symbol is unversioned. A name has several imports if it is used in several ways.
    """

    name: str
    version: str
    provider: str
    slot: int
    kind: SlotKind
    is_weak: bool


def read_imports(image: Image) -> list[Import]:
    """The image's function imports in slot order. Undefined symbols of data are left out, untyped ones are kept."""
    symbols = dynamic_symbols(image)
    if symbols is None or not len(symbols):
        return []
    relocations = read_relocations(image)
    relocations = relocations[relocations["symbol"] < len(symbols)]
    index = relocations["symbol"]
    function = np.isin(symbols.kind, (STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE)) & (symbols.rows["section"] == SHN_UNDEF)
    function[0] = False
    chosen = relocations[function[index] & np.isin(relocations["kind"], [kind.value for kind in SlotKind])]
    chosen = chosen[np.unique(chosen["address"], return_index=True)[1]]
    versions = _needed_versions(image)
    numbers = _version_numbers(image, len(symbols))
    found = []
    for symbol, slot, kind in zip(
        chosen["symbol"].tolist(), chosen["address"].tolist(), chosen["kind"].tolist(), strict=True
    ):
        version, provider = versions.get(int(numbers[symbol]) & ~VERSION_HIDDEN, ("", ""))
        name = symbols.raw_name(symbol).decode("utf-8", "surrogateescape")
        is_weak = int(symbols.rows["info"][symbol]) >> 4 == STB_WEAK
        found.append(Import(name, version, provider, slot, SlotKind(kind), is_weak))
    return found


def lookup_dynamic(image: Image, name: str) -> int | None:
    """The image address of an exported symbol, in its default version; None if it is not exported.

    For an indirect function (STT_GNU_IFUNC) this is the resolver.
    """
    symbols = dynamic_symbols(image)
    if symbols is None:
        return None
    found = [
        row
        for row in _rows_named(image, symbols, name.encode("utf-8", "surrogateescape"))
        if int(symbols.rows["section"][row]) != SHN_UNDEF and int(symbols.rows["info"][row]) >> 4 != STB_LOCAL
    ]
    if len(found) > 1:
        versions = _version_numbers(image, len(symbols))
        found.sort(key=lambda row: bool(int(versions[row]) & VERSION_HIDDEN))
    return int(symbols.rows["value"][found[0]]) if found else None


def _rows_named(image: Image, symbols: SymbolTable, name: bytes) -> list[int]:
    if image not in _HASHED:
        _HASHED[image] = read_hashed_names(image, image.dynamic_value(DT_GNU_HASH), len(symbols))
    hashed = _HASHED[image]
    if hashed is None:
        return [int(row) for row in symbols.find_name(name)]
    return [row for row in hashed.rows(name) if symbols.raw_name(row) == name]


def _version_numbers(image: Image, count: int) -> npt.NDArray[np.uint16]:
    """uint16[count]: the version number of each dynamic symbol (DT_VERSYM), 1 where the image has no versions."""
    address = image.dynamic_value(DT_VERSYM)
    if address is not None:
        try:
            return np.frombuffer(image.view(address, 2 * count), "<u2")
        except DamagedFile:
            pass
    return np.ones(count, np.uint16)


def _needed_versions(image: Image) -> dict[int, tuple[str, str]]:
    """Version number to (version, provider), from DT_VERNEED (Linux Standard Base, "Symbol Versioning")."""
    address, count = image.dynamic_value(DT_VERNEED), image.dynamic_value(DT_VERNEEDNUM) or 0
    versions: dict[int, tuple[str, str]] = {}
    if address is None:
        return versions
    data = image.rest_of_segment(address)
    at = 0
    for _ in range(min(count, 0xFFFF)):
        _, entries, file, first, following = _fields(data, at, (2, 2, 4, 4, 4))
        entry_at = at + first
        for _ in range(entries):
            _, _, number, name, step = _fields(data, entry_at, (4, 2, 2, 4, 4))
            versions[number & ~VERSION_HIDDEN] = (_string(image, name), _string(image, file))
            entry_at += step
            if not step:
                break
        at += following
        if not following:
            break
    return versions


def _fields(data: Bytes, at: int, widths: tuple[int, ...]) -> list[int]:
    """Consecutive little-endian integers; zeros where the table ends early."""
    values = []
    for width in widths:
        values.append(int.from_bytes(data[at : at + width].tobytes(), "little"))
        at += width
    return values


def _string(image: Image, offset: int) -> str:
    return elf.string_at(image.dynamic_strings, offset).decode("utf-8", "surrogateescape")
