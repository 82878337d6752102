"""The unwind table (.eh_frame) of an image: every FDE's range, and the raw CIE and FDE of an address.

The sorted table in .eh_frame_hdr gives all FDE addresses at once, so that nothing need be read entry by entry; without
it (some static programs) the section is walked. Call-frame instructions are passed on as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shadowgraph.image import elf
from shadowgraph.image.cfi import (
    CFA_DEF_CFA,
    CFA_DEF_CFA_OFFSET,
    CFA_DEF_CFA_REGISTER,
    CFA_REGISTER,
    ELSEWHERE,
    RBP,
    RETURN_ADDRESS,
    Cursor,
    Row,
    judge_row,
    rows,
)
from shadowgraph.image.elf import Bytes, DamagedFile, gather
from shadowgraph.image.frame_entries import (
    LONG_FORM,
    PE_DATAREL,
    PE_OMIT,
    PE_PCREL,
    Cie,
    Fde,
    entry_length,
    is_relative,
    pointer_format,
    read_cie,
    read_pointer,
)
from shadowgraph.image.image import Image
from shadowgraph.image.reasons import Reason

__all__ = ["Cie", "Fde", "UnwindTable", "read_unwind_table"]

# The first instruction of an FDE that leaves the CIE's row in force at the function's start: an advance, or padding.
_ADVANCES = np.zeros(256, np.bool_)
_ADVANCES[[0x00, 0x02, 0x03, 0x04]] = True
_ADVANCES[0x41:0x80] = True


@dataclass(slots=True)
class _Columns:
    """What is known of each FDE without reading its instructions; ``at`` and ``body`` are offsets in the table."""

    start: npt.NDArray[np.uint64]
    size: npt.NDArray[np.uint64]
    at: npt.NDArray[np.int64]
    body: npt.NDArray[np.int64]
    cie: npt.NDArray[np.int32]
    first_row: npt.NDArray[np.uint8]

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> _Columns:
        return _Columns(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def joined(cls, parts: list[_Columns]) -> _Columns:
        none = np.zeros(0, np.int64)
        empty = cls(
            none.view(np.uint64), none.view(np.uint64), none, none, none.astype(np.int32), none.astype(np.uint8)
        )
        return cls(*(np.concatenate([getattr(part, field.name) for part in [empty, *parts]]) for field in fields(cls)))


class UnwindTable:
    """All FDEs of an image, sorted by start. All arrays have the same length n.

    ``start``, ``size``  uint64, image address and bytes
    ``first_row``        uint8, a :class:`Reason` that speaks against a call landing at ``start``, 0 if one may

    ``skipped`` counts entries that were unreadable.
    """

    def __init__(self, data: Bytes, address: int, where: npt.NDArray[np.int64]) -> None:
        """``data`` are the bytes from image address ``address`` on; ``where`` the offsets of all FDEs in it."""
        self._data = data
        self._address = address
        self.cies: list[Cie] = []
        self.skipped = 0
        columns = _Columns.joined([self._read_group(cie_at, where[rows]) for cie_at, rows in self._by_cie(where)])
        self._columns = columns.take(np.argsort(columns.start, kind="stable"))
        self.start = self._columns.start
        self.size = self._columns.size
        self.first_row = self._columns.first_row

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
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
        at, body = int(self._columns.at[row]), int(self._columns.body[row])
        cie = self.cies[int(self._columns.cie[row])]
        length, head = entry_length(self._data, at)
        instructions = self._data[body : at + head + length].tobytes()
        start, size = int(self.start[row]), int(self.size[row])
        return Fde(start, size, cie, instructions, self._address + at, self._lsda(at + head, cie))

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
        return judge_row(fde.cie, fde.instructions, pc - fde.start)

    def rule_at(self, pc: int) -> Row | None:
        """Where the CFA and the return address are at ``pc``; None outside all entries or in a damaged one."""
        fde, found = self.find(pc), None
        if fde is None:
            return None
        try:
            for distance, rule in rows(fde.cie, fde.instructions):
                if distance > pc - fde.start:
                    break
                found = rule
        except (IndexError, ValueError):
            return None
        return found

    @cached_property
    def deepest(self) -> npt.NDArray[np.int64]:
        """int64[n]: how far above rsp the CFA is at most in the rows of each entry, in bytes; never too small.

        Taken from all that looks like DW_CFA_def_cfa_offset, without reading instruction by instruction: a sieve for
        searches through all code of an image.
        """
        deepest = np.full(len(self), 8, np.int64)
        at, owner = self._occurrences(bytes([CFA_DEF_CFA_OFFSET]))
        low, high, highest = (self._data[np.minimum(at + i, len(self._data) - 1)].astype(np.int64) for i in (1, 2, 3))
        depth = np.where(low < 128, low, (low & 127) | (high & 127) << 7 | np.where(high >= 128, highest << 14, 0))
        by_owner = np.argsort(owner, kind="stable")
        owner, depth = owner[by_owner], depth[by_owner]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        if len(first):
            deepest[owner[first]] = np.maximum(np.maximum.reduceat(depth, first), 8)
        return deepest

    @cached_property
    def may_use_rbp(self) -> npt.NDArray[np.bool_]:
        """bool[n]: whether the CFA of the entry may be counted from rbp somewhere; a sieve like :attr:`deepest`."""
        marked = np.zeros(len(self), np.bool_)
        for instruction in (CFA_DEF_CFA_REGISTER, CFA_DEF_CFA):
            marked[self._occurrences(bytes([instruction, RBP]))[1]] = True
        return marked

    def moves_return_address(self) -> list[int]:
        """The rows of functions that keep their return address in a register for a while, as vfork does."""
        suspects = np.unique(self._occurrences(bytes([CFA_REGISTER, RETURN_ADDRESS]))[1])
        return [row for row in suspects.tolist() if self._moves(self.fde(row))]

    @staticmethod
    def _moves(fde: Fde) -> bool:
        try:
            return any(rule.return_address == ELSEWHERE for _, rule in rows(fde.cie, fde.instructions))
        except (IndexError, ValueError):
            return False

    def _occurrences(self, wanted: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where these one or two bytes stand in the table, as offsets, and the row of the entry each is part of."""
        data = self._data
        hits = data == wanted[0] if len(wanted) == 1 else (data[:-1] == wanted[0]) & (data[1:] == wanted[1])
        at = np.flatnonzero(hits)
        order = np.argsort(self._columns.at, kind="stable")
        owner = np.searchsorted(self._columns.at[order], at, side="right") - 1
        return at[owner >= 0], order[owner[owner >= 0]]

    # --- reading ---

    def _by_cie(self, where: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """FDE positions grouped by the offset of their CIE: (offset, indexes into ``where``)."""
        heads = np.where(gather(self._data, where, 4) == LONG_FORM, 12, 4).astype(np.int64)
        back = gather(self._data, where + heads, 4).astype(np.int64)
        owners, inverse = np.unique(where + heads - back, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        bounds = np.searchsorted(inverse[order], np.arange(len(owners) + 1))
        return [(int(owner), order[bounds[i] : bounds[i + 1]]) for i, owner in enumerate(owners)]

    def _read_group(self, cie_at: int, where: npt.NDArray[np.int64]) -> _Columns:
        """The columns of the FDEs at ``where``, which share the CIE at ``cie_at``; none if that CIE is unreadable."""
        try:
            if cie_at < 0:
                raise ValueError("a CIE lies before its table")
            cie = read_cie(self._data, self._address, cie_at)
            width, signed = pointer_format(cie.pointer_encoding)
            relative = is_relative(cie.pointer_encoding)
        except (IndexError, ValueError):
            self.skipped += len(where)
            return _Columns.joined([])
        self.cies.append(cie)
        length = gather(self._data, where, 4).astype(np.int64)
        # The long form is for tables beyond 4 GB; nothing writes it into .eh_frame. 48 bytes hold any head of an FDE.
        fits = (length != LONG_FORM) & (where + 4 + length <= len(self._data)) & (length >= 4 + 2 * width)
        self.skipped += int((~fits).sum())
        where, end = where[fits], (where + 4 + length)[fits]
        pointer_at = where + 8
        start = gather(self._data, pointer_at, width)
        if signed:
            start = _sign_extended(start, width)
        if relative:
            start = start + (pointer_at + self._address).astype(np.uint64)
        size = gather(self._data, pointer_at + width, width)
        body = pointer_at + 2 * width
        if cie.has_augmentation_data:
            # Its size is ULEB128, but one byte of it in every table: more would be 128 bytes of augmentation data.
            body = body + 1 + gather(self._data, np.minimum(body, len(self._data) - 1), 1).astype(np.int64)
        number = np.full(len(where), len(self.cies) - 1, np.int32)
        columns = _Columns(start, size, where, body, number, self._first_rows(cie, body, end))
        return columns.take((size > 0) & (body <= end))

    def _first_rows(self, cie: Cie, body: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """uint8[n]: what each FDE's row at its start says. Those that begin with an advance have the CIE's own row."""
        if cie.is_signal_frame:
            return np.full(len(body), Reason.SIGNAL_FRAME, np.uint8)
        verdicts = np.full(len(body), judge_row(cie, b"", 0), np.uint8)
        inside = np.flatnonzero(body < end)
        known: dict[bytes, Reason] = {}
        for row in inside[~_ADVANCES[self._data[body[inside]]]].tolist():
            # Most first rows are told by a few bytes, and few of those differ; only long ones are read to the end.
            code = self._data[body[row] : min(end[row], body[row] + 32)].tobytes()
            if code not in known:
                verdict = judge_row(cie, code, 0)
                if verdict == Reason.UNREADABLE_UNWIND:
                    verdicts[row] = judge_row(cie, self._data[body[row] : end[row]].tobytes(), 0)
                    continue
                known[code] = verdict
            verdicts[row] = known[code]
        return verdicts

    def _lsda(self, at: int, cie: Cie) -> int:
        """The language-specific data of the FDE whose head ends at offset ``at``; 0 if it has none."""
        if not cie.has_augmentation_data or cie.lsda_encoding == PE_OMIT:
            return 0
        width, _ = pointer_format(cie.pointer_encoding)
        cursor = Cursor(self._data[at : at + 48].tobytes(), 4 + 2 * width)
        try:
            return read_pointer(cie.lsda_encoding, cursor, self._address + at) if cursor.uleb() else 0
        except (IndexError, ValueError):
            return 0


def read_unwind_table(image: Image) -> UnwindTable:
    """Read the image's .eh_frame; an empty table, and a remark, where it has none that is usable."""
    try:
        header = _read_header(image)
        section = image.elf.section(".eh_frame")
        if section is not None and section.address and section.type != elf.SHT_NOBITS:
            address, data = section.address, image.view(section.address, section.size)
        elif header is not None:
            address, data = header.frames, image.rest_of_segment(header.frames)
        else:
            return _no_table()
        where = header.entries - address if header is not None and len(header.entries) else _walk(data)
        return UnwindTable(data, address, where[(where >= 0) & (where + 16 <= len(data))])
    except DamagedFile as problem:
        image.elf.remarks.append(f"The unwind table is unusable: {problem}.")
        return _no_table()


def _no_table() -> UnwindTable:
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
    # Bytes: version 1, encodings of the pointer to .eh_frame, of the count, of the table. All linkers write these ones.
    if len(data) < 12 or data[0] != 1 or int(data[1]) != (PE_PCREL | 0x0B):
        return None
    frames = address + 4 + int(data[4:8].view("<i4")[0])
    if int(data[2]) != 0x03 or int(data[3]) != (PE_DATAREL | 0x0B):
        return _Header(frames, np.zeros(0, np.int64))
    count = min(int(data[8:12].view("<u4")[0]), (len(data) - 12) // 8)
    table = data[12 : 12 + 8 * count].view("<i4").reshape(-1, 2)
    return _Header(frames, table[:, 1].astype(np.int64) + address)


def _walk(data: Bytes) -> npt.NDArray[np.int64]:
    """The offsets of all FDEs, from entry to entry. Zero words end the entries of an object file, not the table."""
    raw, found, at = data.tobytes(), [], 0
    while at + 8 <= len(raw):
        length = int.from_bytes(raw[at : at + 4], "little")
        if length == 0:
            at += 4
            continue
        if length == LONG_FORM or at + 4 + length > len(raw):
            break
        if raw[at + 4 : at + 8] != b"\0\0\0\0":
            found.append(at)
        at += 4 + length
    return np.array(found, np.int64)


def _sign_extended(values: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.uint64]:
    """Integers of ``width`` bytes, sign-extended within uint64 so that adding to them wraps as it should."""
    shift = 64 - 8 * width
    extended: npt.NDArray[np.uint64] = ((values << np.uint64(shift)).view(np.int64) >> np.int64(shift)).view(np.uint64)
    return extended
