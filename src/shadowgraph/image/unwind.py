"""The unwind table (.eh_frame) of an image: every FDE's range, and the raw CIE and FDE of an address.

The layout is that of the Linux Standard Base, "Exception Frames"; pointer encodings are DW_EH_PE_… there. The sorted table
in .eh_frame_hdr gives all FDE addresses at once, so nothing is read entry by entry; without it (some static programs) the
section is walked. Only this module knows the encoding; call-frame instructions are passed on as bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.image import elf
from shadowgraph.image.cfi import Cursor, judge_row
from shadowgraph.image.elf import Bytes, DamagedFile, gather
from shadowgraph.image.image import Image
from shadowgraph.image.reasons import Reason

__all__ = ["Cie", "Fde", "UnwindTable", "read_unwind_table"]

PE_OMIT, PE_ABSOLUTE, PE_PCREL, PE_DATAREL, PE_INDIRECT = 0xFF, 0x00, 0x10, 0x30, 0x80
# Width and signedness of the pointer formats that linkers emit in tables (low nibble of an encoding).
_FORMATS = {0x00: (8, False), 0x02: (2, False), 0x03: (4, False), 0x04: (8, False)}
_FORMATS |= {0x0A: (2, True), 0x0B: (4, True), 0x0C: (8, True)}
# The first instruction of an FDE that leaves the CIE's row in force at the function's start: an advance, or padding.
_ADVANCES = np.zeros(256, np.bool_)
_ADVANCES[[0x00, 0x02, 0x03, 0x04]] = True
_ADVANCES[0x41:0x80] = True


@dataclass(frozen=True, slots=True)
class Cie:
    """A common information entry. ``personality`` is the address of the routine, or of a pointer to it if ``…_indirect``."""

    address: int
    version: int
    augmentation: str
    code_alignment: int
    data_alignment: int
    return_register: int
    pointer_encoding: int
    lsda_encoding: int
    personality: int
    personality_indirect: bool
    is_signal_frame: bool
    instructions: bytes

    @property
    def has_augmentation_data(self) -> bool:
        """Whether its FDEs carry augmentation data (augmentation "z…")."""
        return self.augmentation.startswith("z")


@dataclass(frozen=True, slots=True)
class Fde:
    """A frame description entry: the instructions that give a row to each pc in [start, start + size).

    ``address`` is where the entry itself lies; ``lsda`` the image address of the language's table, 0 if there is none.
    """

    start: int
    size: int
    cie: Cie
    instructions: bytes
    address: int
    lsda: int


class UnwindTable:
    """All FDEs of an image, sorted by start. Arrays: ``start``, ``size`` uint64[n] in image addresses and bytes,
    ``first_row`` uint8[n]: a :class:`Reason` that speaks against a call landing at ``start``, 0 if it may.
    """  # noqa: D205

    def __init__(self, data: Bytes, address: int, where: npt.NDArray[np.int64]) -> None:
        """``data`` are the bytes at image address ``address`` on; ``where`` the offsets of all FDEs in it."""
        self._data = data
        self._address = address
        self.cies: list[Cie] = []
        self.skipped = 0
        parts = [self._read_group(cie_at, where[chosen]) for cie_at, chosen in self._by_cie(where)]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else _NO_COLUMNS
        order = np.argsort(columns[0], kind="stable")
        start, size, where, cie, body, first_row = (column[order] for column in columns)
        self.start: npt.NDArray[np.uint64] = start
        self.size: npt.NDArray[np.uint64] = size
        self._where, self._cie, self._body = where, cie, body
        self.first_row: npt.NDArray[np.uint8] = first_row

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> npt.NDArray[np.uint64]:
        """uint64[n]: the first address behind each FDE's range."""
        return self.start + self.size

    def index(self, pc: int) -> int:
        """The row whose range holds ``pc``, or -1."""
        row = int(np.searchsorted(self.start, np.uint64(pc), side="right")) - 1
        return row if row >= 0 and pc - int(self.start[row]) < int(self.size[row]) else -1

    def indexes(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """int64[len(addresses)]: the row whose range holds each address, or -1."""
        if not len(self):
            return np.full(len(addresses), -1, np.int64)
        rows = np.searchsorted(self.start, addresses, side="right").astype(np.int64) - 1
        held = (rows >= 0) & (addresses - self.start[rows] < self.size[rows])
        return np.where(held, rows, -1)

    def fde(self, row: int) -> Fde:
        """The entry of a row, with its instructions as bytes."""
        at, cie = int(self._where[row]), self.cies[int(self._cie[row])]
        length, head = self._length(at)
        body = int(self._body[row])
        lsda = self._lsda(at, head, cie)
        instructions = self._data[body : at + head + length].tobytes()
        return Fde(int(self.start[row]), int(self.size[row]), cie, instructions, self._address + at, lsda)

    def find(self, pc: int) -> Fde | None:
        """The entry whose range holds ``pc`` (an image address), or None."""
        row = self.index(pc)
        return self.fde(row) if row >= 0 else None

    def judge(self, pc: int) -> Reason:
        """What speaks against a call landing at ``pc``, by the row that holds there; NONE outside all FDEs."""
        fde = self.find(pc)
        if fde is None:
            return Reason.NONE
        if fde.cie.is_signal_frame:
            return Reason.SIGNAL_FRAME
        cie = fde.cie
        return judge_row(cie.instructions, fde.instructions, cie.code_alignment, cie.data_alignment, pc - fde.start)

    # --- reading ---

    def _by_cie(self, where: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """FDE positions grouped by the offset of their CIE: (offset, indexes into ``where``)."""
        heads = np.where(gather(self._data, where, 4) == 0xFFFFFFFF, 12, 4).astype(np.int64)
        back = gather(self._data, where + heads, 4).astype(np.int64)
        owners, inverse = np.unique(where + heads - back, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        bounds = np.searchsorted(inverse[order], np.arange(len(owners) + 1))
        return [(int(owner), order[bounds[i] : bounds[i + 1]]) for i, owner in enumerate(owners)]

    def _read_group(self, cie_at: int, where: npt.NDArray[np.int64]) -> list[npt.NDArray[np.generic]]:
        """Columns of the FDEs at ``where``, which share the CIE at ``cie_at``; empty ones if that CIE is unreadable."""
        try:
            cie = self._read_cie(cie_at)
            width, signed = _FORMATS[cie.pointer_encoding & 0x0F]
            relative = _relative(cie.pointer_encoding)
        except (IndexError, ValueError, KeyError):
            self.skipped += len(where)
            return _NO_COLUMNS
        lengths = gather(self._data, where, 4).astype(np.int64)
        heads = np.where(lengths == 0xFFFFFFFF, 12, 4)
        pointer_at = where + heads + 4
        start = _signed(gather(self._data, pointer_at, width), width if signed else 8)
        if relative:
            start = start + (pointer_at + self._address).astype(np.uint64)
        size = gather(self._data, pointer_at + width, width)
        body = pointer_at + 2 * width
        if cie.has_augmentation_data:
            # One byte of ULEB128 in every table seen; a longer one would mean 128 bytes of augmentation data.
            sizes = gather(self._data, body, 1).astype(np.int64)
            body = body + 1 + sizes
        number = len(self.cies)
        self.cies.append(cie)
        end = where + heads + lengths
        first_row = self._first_rows(cie, body, end)
        kept = (size > 0) & (body <= end) & (heads == 4)
        self.skipped += int((~kept).sum())
        columns = [start, size, where, np.full(len(where), number, np.int32), body, first_row]
        return [column[kept] for column in columns]

    def _first_rows(self, cie: Cie, body: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """uint8[n]: what each FDE's row at its start says. Those that begin with an advance have the CIE's own row."""
        if cie.is_signal_frame:
            return np.full(len(body), Reason.SIGNAL_FRAME, np.uint8)
        plain = judge_row(cie.instructions, b"", cie.code_alignment, cie.data_alignment, 0)
        verdicts = np.full(len(body), plain, np.uint8)
        inside = np.flatnonzero((body < end) & (end <= len(self._data)))
        first = self._data[body[inside]]
        for row in inside[~_ADVANCES[first]].tolist():
            code = self._data[body[row] : min(end[row], body[row] + 64)].tobytes()
            verdicts[row] = judge_row(cie.instructions, code, cie.code_alignment, cie.data_alignment, 0)
        return verdicts

    def _read_cie(self, at: int) -> Cie:
        length, head = self._length(at)
        cursor = Cursor(self._data[at : at + head + length].tobytes(), head)
        if cursor.unsigned(4) != 0:
            raise ValueError("an FDE points to something that is no CIE")
        version = cursor.byte()
        augmentation = cursor.string().decode("ascii", "replace")
        if augmentation.startswith("eh"):
            raise ValueError("CIEs of the first GCC 2 kind are not known here")
        code_alignment, data_alignment = cursor.uleb(), cursor.sleb()
        return_register = cursor.byte() if version == 1 else cursor.uleb()
        pointer, lsda, personality, indirect, signal = PE_ABSOLUTE, PE_OMIT, 0, False, False
        if augmentation.startswith("z"):
            end = cursor.uleb() + cursor.offset
            for letter in augmentation[1:]:
                if letter == "R":
                    pointer = cursor.byte()
                elif letter == "L":
                    lsda = cursor.byte()
                elif letter == "P":
                    encoding = cursor.byte()
                    personality = self._pointer(encoding, cursor, at)
                    indirect = bool(encoding & PE_INDIRECT)
                elif letter == "S":
                    signal = True
                else:
                    break
            cursor.offset = end
        elif augmentation:
            raise ValueError(f"CIE augmentation {augmentation} is not known here")
        return Cie(
            self._address + at,
            version,
            augmentation,
            code_alignment,
            data_alignment,
            return_register,
            pointer,
            lsda,
            personality,
            indirect,
            signal,
            cursor.data[cursor.offset :],
        )

    def _lsda(self, at: int, head: int, cie: Cie) -> int:
        if not cie.has_augmentation_data or cie.lsda_encoding == PE_OMIT:
            return 0
        width, _ = _FORMATS[cie.pointer_encoding & 0x0F]
        cursor = Cursor(self._data[at : at + head + 4 + 2 * width + 32].tobytes(), head + 4 + 2 * width)
        try:
            return self._pointer(cie.lsda_encoding, cursor, at) if cursor.uleb() else 0
        except (IndexError, ValueError, KeyError):
            return 0

    def _pointer(self, encoding: int, cursor: Cursor, base: int) -> int:
        """The pointer at ``cursor``, whose data begin at offset ``base``; a stored zero means none."""
        width, signed = _FORMATS[encoding & 0x0F]
        here = self._address + base + cursor.offset
        value = cursor.unsigned(width)
        if not value:
            return 0
        if signed and value >> (width * 8 - 1):
            value -= 1 << (width * 8)
        return (value + (here if _relative(encoding) else 0)) & (2**64 - 1)

    def _length(self, at: int) -> tuple[int, int]:
        """Length of the entry at ``at`` without its head, and the size of that head (4, or 12 for the long form)."""
        raw = self._data[at : at + 12].tobytes()
        short = int.from_bytes(raw[:4], "little")
        return (int.from_bytes(raw[4:12], "little"), 12) if short == 0xFFFFFFFF else (short, 4)


def read_unwind_table(image: Image) -> UnwindTable:
    """Read the image's .eh_frame; an empty table where it has none or its header is unusable."""
    try:
        header = _read_header(image)
        section = image.elf.section(".eh_frame")
        if section is not None and section.address and section.type != elf.SHT_NOBITS:
            address, data = section.address, image.view(section.address, section.size)
        elif header is not None and header.frames:
            address, data = header.frames, image.rest_of_segment(header.frames)
        else:
            return UnwindTable(np.zeros(0, np.uint8), 0, np.zeros(0, np.int64))
        where = header.entries - address if header is not None and len(header.entries) else _walk(data)
        inside = (where >= 0) & (where + 16 <= len(data))
        return UnwindTable(data, address, where[inside])
    except DamagedFile as problem:
        image.elf.remarks.append(f"The unwind table is unusable: {problem}.")
        return UnwindTable(np.zeros(0, np.uint8), 0, np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class _Header:
    frames: int
    entries: npt.NDArray[np.int64]


def _read_header(image: Image) -> _Header | None:
    """.eh_frame_hdr: the address of .eh_frame and of every FDE; no entries if its table is of an unusual encoding."""
    if image.eh_frame_header is None:
        return None
    address, size = image.eh_frame_header
    data = image.view(address, size)
    if len(data) < 12 or data[0] != 1:
        return None
    # Version, encoding of the pointer to .eh_frame, of the count, and of the table; the usual ones are the only ones seen.
    none = np.zeros(0, np.int64)
    if int(data[1]) != (PE_PCREL | 0x0B):
        return None
    frames = address + 4 + struct.unpack("<i", data[4:8].tobytes())[0]
    if int(data[2]) != 0x03 or int(data[3]) != (PE_DATAREL | 0x0B):
        return _Header(frames, none)
    count = min(struct.unpack("<I", data[8:12].tobytes())[0], (len(data) - 12) // 8)
    table = np.frombuffer(data[12 : 12 + 8 * count], "<i4").reshape(-1, 2)
    return _Header(frames, table[:, 1].astype(np.int64) + address)


def _walk(data: Bytes) -> npt.NDArray[np.int64]:
    """The offsets of all FDEs, found by going from entry to entry. Zero words are terminators of single object files."""
    raw, found, at = data.tobytes(), [], 0
    while at + 8 <= len(raw):
        length = int.from_bytes(raw[at : at + 4], "little")
        if length == 0:
            at += 4
            continue
        if length == 0xFFFFFFFF or at + 4 + length > len(raw):
            break
        if raw[at + 4 : at + 8] != b"\0\0\0\0":
            found.append(at)
        at += 4 + length
    return np.array(found, np.int64)


def _relative(encoding: int) -> bool:
    """Whether a pointer counts from its own place; other bases than that and zero are not used on x86-64 Linux."""
    application = encoding & 0x70
    if application not in (PE_ABSOLUTE, PE_PCREL):
        raise ValueError(f"pointer encoding {encoding:#x} is not known here")
    return application == PE_PCREL


def _signed(values: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.uint64]:
    """Sign-extend integers of ``width`` bytes within uint64, so that adding them wraps as it should."""
    if width == 8:
        return values
    shift = np.uint64(64 - 8 * width)
    extended: npt.NDArray[np.uint64] = ((values << shift).view(np.int64) >> shift.astype(np.int64)).view(np.uint64)
    return extended


_NO_COLUMNS: list[npt.NDArray[np.generic]] = [
    np.zeros(0, np.uint64),
    np.zeros(0, np.uint64),
    np.zeros(0, np.int64),
    np.zeros(0, np.int32),
    np.zeros(0, np.int64),
    np.zeros(0, np.uint8),
]
