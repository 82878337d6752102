"""The entries of .eh_frame one by one: CIEs, FDEs and the encoded pointers in them.

The layout is that of the Linux Standard Base, "Exception Frames"; pointer encodings are DW_EH_PE_… there.
"""

from __future__ import annotations

from dataclasses import dataclass

from shadowgraph.image.cfi import Cursor
from shadowgraph.image.elf import Bytes

__all__ = ["Cie", "Fde", "entry_length", "is_relative", "pointer_format", "read_cie", "read_pointer"]

PE_OMIT, PE_ABSOLUTE, PE_PCREL, PE_DATAREL, PE_INDIRECT = 0xFF, 0x00, 0x10, 0x30, 0x80
LONG_FORM = 0xFFFFFFFF
# Width and signedness of the pointer formats that linkers emit in tables (low nibble of an encoding).
_FORMATS = {0x00: (8, False), 0x02: (2, False), 0x03: (4, False), 0x04: (8, False)}
_FORMATS |= {0x0A: (2, True), 0x0B: (4, True), 0x0C: (8, True)}


@dataclass(frozen=True, slots=True)
class Cie:
    """A common information entry. ``address`` is where it lies.

    ``personality`` is the image address of the routine, or of a pointer to it if ``personality_indirect``; 0 for none.
    """

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


def entry_length(data: Bytes, at: int) -> tuple[int, int]:
    """Length of the entry at offset ``at`` without its head, and the size of that head (4, or 12 for the long form)."""
    raw = data[at : at + 12].tobytes()
    short = int.from_bytes(raw[:4], "little")
    return (int.from_bytes(raw[4:12], "little"), 12) if short == LONG_FORM else (short, 4)


def pointer_format(encoding: int) -> tuple[int, bool]:
    """Width in bytes and signedness of a pointer encoding; ValueError for one without a fixed width."""
    if encoding & 0x0F not in _FORMATS:
        raise ValueError(f"pointer encoding {encoding:#x} is not known here")
    return _FORMATS[encoding & 0x0F]


def is_relative(encoding: int) -> bool:
    """Whether a pointer counts from its own place; other bases than that and zero are not used on x86-64 Linux."""
    application = encoding & 0x70
    if application not in (PE_ABSOLUTE, PE_PCREL):
        raise ValueError(f"pointer encoding {encoding:#x} is not known here")
    return application == PE_PCREL


def read_pointer(encoding: int, cursor: Cursor, base: int) -> int:
    """The pointer at ``cursor``, whose first byte has the image address ``base``; a stored zero means none."""
    width, signed = pointer_format(encoding)
    here = base + cursor.offset
    value = cursor.unsigned(width)
    if not value:
        return 0
    if signed and value >> (width * 8 - 1):
        value -= 1 << (width * 8)
    return (value + (here if is_relative(encoding) else 0)) & (2**64 - 1)


def read_cie(data: Bytes, address: int, at: int) -> Cie:
    """The CIE at offset ``at`` of the table that begins at image address ``address``.

    ValueError or IndexError for one that is damaged or of a kind that no toolchain of this century writes.
    """
    length, head = entry_length(data, at)
    cursor = Cursor(data[at : at + head + length].tobytes(), head)
    if cursor.unsigned(4) != 0:
        raise ValueError("an FDE points to something that is no CIE")
    version = cursor.byte()
    augmentation = cursor.string().decode("ascii", "replace")
    if augmentation and not augmentation.startswith("z"):
        raise ValueError(f"CIE augmentation {augmentation} is not known here")
    code_alignment, data_alignment = cursor.uleb(), cursor.sleb()
    return_register = cursor.byte() if version == 1 else cursor.uleb()
    extras = _Augmentation()
    if augmentation:
        size = cursor.uleb()
        end = cursor.offset + size
        extras.read(augmentation[1:], cursor, address + at)
        cursor.offset = end
    return Cie(
        address=address + at,
        version=version,
        augmentation=augmentation,
        code_alignment=code_alignment,
        data_alignment=data_alignment,
        return_register=return_register,
        pointer_encoding=extras.pointer_encoding,
        lsda_encoding=extras.lsda_encoding,
        personality=extras.personality,
        personality_indirect=extras.personality_indirect,
        is_signal_frame=extras.is_signal_frame,
        instructions=cursor.data[cursor.offset :],
    )


class _Augmentation:
    """What the letters behind "z" tell, in the order in which their data stand."""

    def __init__(self) -> None:
        self.pointer_encoding = PE_ABSOLUTE
        self.lsda_encoding = PE_OMIT
        self.personality = 0
        self.personality_indirect = False
        self.is_signal_frame = False

    def read(self, letters: str, cursor: Cursor, base: int) -> None:
        for letter in letters:
            if letter == "R":
                self.pointer_encoding = cursor.byte()
            elif letter == "L":
                self.lsda_encoding = cursor.byte()
            elif letter == "P":
                encoding = cursor.byte()
                self.personality = read_pointer(encoding, cursor, base)
                self.personality_indirect = bool(encoding & PE_INDIRECT)
            elif letter == "S":
                self.is_signal_frame = True
            else:
                # Letters of other machines: what follows them cannot be told apart, and "z" says where it all ends.
                break
