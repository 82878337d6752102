"""A block of thunks as a shared object: code, unwind information and symbols, for the loader to load.

Other unwinders, debuggers and profilers know nothing of anonymous memory. Loaded as an object, thunks are known to all
of them (design: section 3). Its preferred address is where the block was encoded for; glibc takes that for a hint,
which the kernel follows if the place is free. Who loads it must look where it came to lie, and unload it if that is
elsewhere: nothing in it can be moved.

    base                 ┌───────────────────────────────┐
                         │ ELF header, program headers,  │  R
                         │ empty symbol table and hash   │
    thunk_base           ├───────────────────────────────┤
                         │ thunks                        │  RX
    dynamic_base         ├───────────────────────────────┤
                         │ .dynamic                      │  RW
    unwind_base          ├───────────────────────────────┤
                         │ .eh_frame_hdr, .eh_frame      │  R
                         └───────────────────────────────┘
    not loaded           .symtab, .strtab, section headers
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.thunk_unwind import DATA_ALIGNMENT, ENTRY_INSTRUCTIONS, ThunkRows
from shadowgraph.patch.thunks import HEAD_SIZE, ThunkBlock

__all__ = ["HEADER_SPACE", "ObjectLayout", "build_thunk_object", "lay_out"]

_Ints = npt.NDArray[np.int64]
_PAGE = 4096
# From the object's first byte to the thunks.
HEADER_SPACE = _PAGE

_PT_LOAD, _PT_DYNAMIC, _PT_GNU_EH_FRAME, _PT_GNU_STACK = 1, 2, 0x6474E550, 0x6474E551
_R, _RW, _RX = 4, 6, 5
_DT_NULL, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 0, 4, 5, 6, 10, 11, 14
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB = 1, 2, 3
_SHF_ALLOC, _SHF_EXEC = 2, 4
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_LOCAL_FUNCTION = 2
_DYNAMIC_SIZE = 16 * 8
_TEXT_SECTION = 1


@dataclass(frozen=True)
class ObjectLayout:
    """Where the parts of an object lie, given where its first byte does. ``size``: all that must be free in memory."""

    base: int
    thunk_base: int
    dynamic_base: int
    unwind_base: int
    size: int


def lay_out(base: int, code_size: int, functions: int, unwind_size: int = 0) -> ObjectLayout:
    """The layout of an object for so many bytes of thunks; without ``unwind_size``, for the most that it may take."""
    thunk_base = base + HEADER_SPACE
    dynamic_base = thunk_base + _pages(code_size)
    unwind_base = dynamic_base + _PAGE
    size = unwind_base - base + _pages(unwind_size or functions * 64 + _PAGE)
    return ObjectLayout(base, thunk_base, dynamic_base, unwind_base, size)


def build_thunk_object(block: ThunkBlock, rows: ThunkRows, thunk_base: int, names: Sequence[str], name: str) -> bytes:
    """The file. ``thunk_base`` is where ``block`` was encoded for, as :func:`lay_out` has it.

    ``names`` are those of the m functions, for symbols ``f@thunk`` (none: no symbols); ``name`` is the object's own.
    """
    base = thunk_base - HEADER_SPACE
    layout = lay_out(base, len(block.code), len(block.records))
    start = block.thunk.astype(np.int64)
    sizes = np.append(start[1:], thunk_base + len(block.code)) - start
    described = sizes.copy()
    described[rows.unknown] = HEAD_SIZE
    unwind, table_at = _unwind_sections(start, described, rows, layout.unwind_base)
    symbols, strings = _symbols(block, sizes, names)
    return _File(layout, block, unwind, table_at, symbols, strings, name).content()


# --- unwind information ---


def _unwind_sections(start: _Ints, sizes: _Ints, rows: ThunkRows, address: int) -> tuple[bytes, int]:
    """.eh_frame_hdr and .eh_frame for ``address``, and how far into them the latter begins."""
    header_size = -(-(12 + 8 * len(start)) // 8) * 8
    cie = _cie()
    bodies = [code + bytes(-(17 + len(code)) % 4) for code in rows.codes]
    body_size = np.array([17 + len(body) for body in bodies], np.int64)[rows.code]
    at = header_size + len(cie) + np.cumsum(body_size) - body_size
    total = int(at[-1] + body_size[-1]) if len(at) else header_size + len(cie)
    data = np.zeros(total + 4, np.uint8)  # a zero length ends the table

    header = struct.pack("<4BiI", 1, 0x1B, 0x03, 0x3B, header_size - 4, len(start))
    data[: len(header)] = np.frombuffer(header, np.uint8)
    table = np.stack([start - address, at], axis=1).astype("<i4")
    data[12 : 12 + 8 * len(start)] = table.view(np.uint8).ravel()
    data[header_size : header_size + len(cie)] = np.frombuffer(cie, np.uint8)
    fields = np.stack([body_size - 4, at + 4 - header_size, start - (address + at + 8), sizes], axis=1)
    data[at[:, None] + np.arange(16)] = fields.astype("<i4").view(np.uint8).reshape(-1, 16)
    for number, body in enumerate(bodies):
        owners = np.flatnonzero(rows.code == number)
        data[at[owners][:, None] + 17 + np.arange(len(body))] = np.frombuffer(body, np.uint8)
    return data.tobytes(), header_size


def _cie() -> bytes:
    """Version 1, "zR": code in steps of 1, return address in column 16, pointers relative to their place, 4 bytes."""
    content = b"\0\0\0\0" + b"\x01zR\0" + bytes([1, DATA_ALIGNMENT & 0x7F, 16, 1, 0x1B]) + ENTRY_INSTRUCTIONS
    content += bytes(-len(content) % 4)
    return len(content).to_bytes(4, "little") + content


# --- symbols ---


def _symbols(block: ThunkBlock, sizes: _Ints, names: Sequence[str]) -> tuple[bytes, bytes]:
    """.symtab, its first entry empty as it must be, and .strtab."""
    encoded = [name.encode("utf-8", "surrogateescape") + b"@thunk\0" for name in names]
    table = np.zeros(len(encoded) + 1, _SYMBOL)
    if encoded:
        lengths = np.array([len(name) for name in encoded], np.int64)
        table["name"][1:] = 1 + np.cumsum(lengths) - lengths
        table["info"][1:] = _LOCAL_FUNCTION
        table["section"][1:] = _TEXT_SECTION
        table["value"][1:] = block.thunk
        table["size"][1:] = sizes
    return table.tobytes(), b"\0" + b"".join(encoded)


# --- the file ---


@dataclass(frozen=True)
class _Section:
    name: bytes
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int = 0
    info: int = 0
    entry: int = 0


@dataclass(frozen=True)
class _File:
    layout: ObjectLayout
    block: ThunkBlock
    unwind: bytes
    table_at: int
    symbols: bytes
    strings: bytes
    name: str

    def content(self) -> bytes:
        """All parts at their places; up to the symbols, places in the file and in memory differ by ``base``."""
        loaded = self.layout.unwind_base - self.layout.base + len(self.unwind)
        symbols_at = -(-loaded // 8) * 8
        strings_at = symbols_at + len(self.symbols)
        sections = self._sections(symbols_at, strings_at)
        section_names = b"\0" + b"".join(section.name + b"\0" for section in sections)
        names_at = strings_at + len(self.strings)
        headers_at = -(-(names_at + len(section_names)) // 8) * 8
        sections.append(_Section(b"", _SHT_STRTAB, 0, 0, names_at, len(section_names)))

        data = bytearray(headers_at + 64 * (len(sections) + 1))
        self._write_head(data, headers_at, len(sections) + 1)
        for address, part in self._loaded_parts():
            data[address - self.layout.base : address - self.layout.base + len(part)] = part
        for place, part in ((symbols_at, self.symbols), (strings_at, self.strings), (names_at, section_names)):
            data[place : place + len(part)] = part
        for index, section in enumerate(sections, 1):
            name = section_names.find(b"\0" + section.name + b"\0") + 1 if section.name else 0
            struct.pack_into(
                "<IIQQQQIIQQ", data, headers_at + 64 * index,
                name, section.kind, section.flags, section.address, section.offset, section.size, section.link,
                section.info, 16 if section.flags & _SHF_EXEC else 8, section.entry,
            )  # fmt: skip
        return bytes(data)

    # An empty dynamic symbol table of one null symbol, a string table with the object's name, and a hash table of one
    # empty bucket: the loader and dladdr(3) look there.
    @property
    def _tables(self) -> tuple[int, bytes, bytes, bytes]:
        strings = b"\0" + self.name.encode() + b"\0"
        return self.layout.base + 64 + 56 * 7, bytes(24), struct.pack("<IIII", 1, 1, 0, 0), strings

    def _loaded_parts(self) -> list[tuple[int, bytes]]:
        at, symbols, buckets, strings = self._tables
        entries = (
            (_DT_HASH, at + len(symbols)),
            (_DT_STRTAB, at + len(symbols) + len(buckets)),
            (_DT_SYMTAB, at),
            (_DT_STRSZ, len(strings)),
            (_DT_SYMENT, 24),
            (_DT_SONAME, 1),
            (_DT_NULL, 0),
            (_DT_NULL, 0),
        )
        dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
        return [
            (at, symbols + buckets + strings),
            (self.layout.thunk_base, self.block.code),
            (self.layout.dynamic_base, dynamic),
            (self.layout.unwind_base, self.unwind),
        ]

    def _sections(self, symbols_at: int, strings_at: int) -> list[_Section]:
        layout, code = self.layout, len(self.block.code)

        def loaded(name: bytes, flags: int, address: int, size: int) -> _Section:
            return _Section(name, _SHT_PROGBITS, flags | _SHF_ALLOC, address, address - layout.base, size)

        return [
            loaded(b".text", _SHF_EXEC, layout.thunk_base, code),
            loaded(b".eh_frame_hdr", 0, layout.unwind_base, self.table_at),
            loaded(b".eh_frame", 0, layout.unwind_base + self.table_at, len(self.unwind) - self.table_at),
            _Section(b".symtab", _SHT_SYMTAB, 0, 0, symbols_at, len(self.symbols), 5, len(self.symbols) // 24, 24),
            _Section(b".strtab", _SHT_STRTAB, 0, 0, strings_at, len(self.strings)),
        ]

    def _write_head(self, data: bytearray, headers_at: int, sections: int) -> None:
        layout = self.layout
        segments = [
            (_PT_LOAD, _R, layout.base, HEADER_SPACE, _PAGE),
            (_PT_LOAD, _RX, layout.thunk_base, len(self.block.code), _PAGE),
            (_PT_LOAD, _RW, layout.dynamic_base, _DYNAMIC_SIZE, _PAGE),
            (_PT_LOAD, _R, layout.unwind_base, len(self.unwind), _PAGE),
            (_PT_DYNAMIC, _RW, layout.dynamic_base, _DYNAMIC_SIZE, 8),
            (_PT_GNU_EH_FRAME, _R, layout.unwind_base, self.table_at, 8),
        ]
        identification = b"\x7fELF\x02\x01\x01" + bytes(9)
        struct.pack_into(
            "<16sHHIQQQIHHHHHH", data, 0,
            identification, 3, 62, 1, 0, 64, headers_at, 0, 64, 56, len(segments) + 1, 64, sections, sections - 1,
        )  # fmt: skip
        for index, (kind, flags, address, size, align) in enumerate(segments):
            struct.pack_into(
                "<IIQQQQQQ",
                data,
                64 + 56 * index,
                kind,
                flags,
                address - layout.base,
                address,
                address,
                size,
                size,
                align,
            )
        struct.pack_into("<IIQQQQQQ", data, 64 + 56 * len(segments), _PT_GNU_STACK, _RW, 0, 0, 0, 0, 0, 16)


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
