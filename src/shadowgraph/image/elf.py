"""The bytes of an ELF file as numpy tables: header, program headers, sections. Nothing is interpreted here.

Only 64-bit little-endian files are read (System V ABI, AMD64 supplement, chapters 4 and 5). Every offset that comes
from a file is checked before it is used: a file that lies about itself raises :class:`DamagedFile`, never IndexError.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["HEADER", "PROGRAM_HEADER", "PT_LOAD", "Bytes", "DamagedFile", "ElfFile", "Section", "gather", "string_at"]

Bytes = npt.NDArray[np.uint8]

ET_EXEC, ET_DYN = 2, 3
EM_X86_64 = 62
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_TLS, PT_GNU_EH_FRAME = 1, 2, 3, 4, 7, 0x6474E550
PF_X, PF_W = 1, 2
SHT_PROGBITS, SHT_SYMTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 1, 2, 7, 8, 11
SHF_ALLOC, SHF_EXECINSTR, SHF_COMPRESSED = 2, 4, 0x800
PN_XNUM = 0xFFFF
ELFCOMPRESS_ZLIB = 1
# A section that claims to unpack to more than this is damaged; the largest real ones are a few hundred megabytes.
UNPACKED_LIMIT = 1 << 33

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_COMPRESSION_HEADER = struct.Struct("<IIQQ")

PROGRAM_HEADER = np.dtype(
    [
        ("type", "<u4"),
        ("flags", "<u4"),
        ("offset", "<u8"),
        ("address", "<u8"),
        ("physical", "<u8"),
        ("file_size", "<u8"),
        ("memory_size", "<u8"),
        ("align", "<u8"),
    ]
)
SECTION_HEADER = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("address", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("align", "<u8"),
        ("entry_size", "<u8"),
    ]
)


class DamagedFile(ValueError):
    """The file contradicts itself; the text says where. Turned into a UsageError where the path is known."""


@dataclass(frozen=True, slots=True)
class Section:
    """One section header. ``address`` is 0 for sections that are not loaded."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int

    @property
    def executable(self) -> bool:
        """Whether it is loaded as code."""
        return bool(self.flags & SHF_ALLOC) and bool(self.flags & SHF_EXECINSTR)


def gather(data: Bytes, offsets: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint64]:
    """Little-endian integers of ``width`` bytes (1 to 8) at any offsets, aligned or not, as uint64[len(offsets)].

    Offsets whose bytes do not all lie within ``data`` raise :class:`DamagedFile`.
    """
    if len(offsets) == 0:
        return np.zeros(0, np.uint64)
    if int(offsets.min()) < 0 or int(offsets.max()) + width > len(data):
        raise DamagedFile("an offset points past the end of its table")
    padded = np.zeros((len(offsets), 8), np.uint8)
    padded[:, :width] = data[offsets[:, None] + np.arange(width)]
    return padded.view("<u8")[:, 0]


def string_at(data: Bytes, offset: int, limit: int = 1 << 20) -> bytes:
    """The NUL-terminated bytes at ``offset``; empty where the offset lies outside."""
    if not 0 <= offset < len(data):
        return b""
    piece = data[offset : offset + 256].tobytes()
    if b"\0" not in piece:
        piece = data[offset : offset + limit].tobytes()
    return piece.split(b"\0", 1)[0]


class ElfFile:
    """Header tables of one ELF file whose bytes are ``data`` (uint8[file size], usually a memory map).

    ``remarks`` collects what had to be ignored, one sentence each: a file without usable section headers still runs.
    """

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.remarks: list[str] = []
        if len(data) < HEADER.size:
            raise DamagedFile("it ends within the ELF header")
        fields = HEADER.unpack(data[: HEADER.size].tobytes())
        self.ident: bytes = fields[0]
        self.type, self.machine, _, self.entry, program_offset, section_offset = (int(f) for f in fields[1:7])
        _, _, program_entry, program_count, section_entry, section_count, names_index = (int(f) for f in fields[7:])
        section_table = self._section_table(section_offset, section_entry, section_count)
        if program_count == PN_XNUM and len(section_table):
            program_count = int(section_table["info"][0])
        self.program_headers = self._table(
            PROGRAM_HEADER, program_offset, program_entry, program_count, "program headers"
        )
        if names_index == PN_XNUM and len(section_table):
            names_index = int(section_table["link"][0])
        self.sections = self._named_sections(section_table, names_index)

    def slice(self, offset: int, size: int) -> Bytes:
        """``size`` bytes of the file from ``offset``, without copying; :class:`DamagedFile` if the file is shorter."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise DamagedFile(f"it has {len(self.data)} bytes, but its headers speak of {offset + size}")
        return self.data[offset : offset + size]

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((section for section in self.sections if section.name == name), None)

    def section_of_type(self, kind: int) -> Section | None:
        """The first section of that type (SHT_…)."""
        return next((section for section in self.sections if section.type == kind), None)

    def content(self, section: Section) -> Bytes:
        """The section's bytes, unpacked if it is compressed; empty for one without bytes in the file (SHT_NOBITS)."""
        if section.type == SHT_NOBITS:
            return np.zeros(0, np.uint8)
        raw = self.slice(section.offset, section.size)
        if not section.flags & SHF_COMPRESSED:
            return raw
        if len(raw) < _COMPRESSION_HEADER.size:
            raise DamagedFile(f"its section {section.name} is too short for its compression header")
        kind, _, size, _ = _COMPRESSION_HEADER.unpack(raw[: _COMPRESSION_HEADER.size].tobytes())
        if kind != ELFCOMPRESS_ZLIB or size > UNPACKED_LIMIT:
            raise DamagedFile(f"its section {section.name} is compressed in a way that is not known here")
        try:
            unpacked = zlib.decompress(raw[_COMPRESSION_HEADER.size :].tobytes(), bufsize=max(int(size), 1))
        except zlib.error as problem:
            raise DamagedFile(f"its section {section.name} cannot be unpacked") from problem
        return np.frombuffer(unpacked, np.uint8)

    def _table(self, row: np.dtype[np.void], offset: int, entry: int, count: int, what: str) -> npt.NDArray[np.void]:
        if count == 0 or offset == 0:
            return np.zeros(0, row)
        if entry != row.itemsize:
            raise DamagedFile(f"its {what} have {entry} bytes each instead of {row.itemsize}")
        return np.frombuffer(self.slice(offset, count * entry), row)

    def _section_table(self, offset: int, entry: int, count: int) -> npt.NDArray[np.void]:
        try:
            if count == 0 and offset:
                # More than 65,279 sections: the count stands in the first entry's size (gABI, "Sections").
                count = int(self._table(SECTION_HEADER, offset, entry, 1, "section headers")["size"][0])
            return self._table(SECTION_HEADER, offset, entry, count, "section headers")
        except DamagedFile as problem:
            self.remarks.append(
                f"The section headers are unusable ({problem}); symbols that only they lead to are missing."
            )
            return np.zeros(0, SECTION_HEADER)

    def _named_sections(self, table: npt.NDArray[np.void], names_index: int) -> list[Section]:
        names = np.zeros(0, np.uint8)
        if names_index < len(table):
            row = table[names_index]
            try:
                names = self.slice(int(row["offset"]), int(row["size"]))
            except DamagedFile:
                self.remarks.append("The section names are unusable; sections are known by their types only.")
        fields = (
            table[field].tolist() for field in ("name", "type", "flags", "address", "offset", "size", "link", "info")
        )
        return [
            Section(string_at(names, name, 4096).decode("utf-8", "replace"), *rest)
            for name, *rest in zip(*fields, strict=True)
        ]
