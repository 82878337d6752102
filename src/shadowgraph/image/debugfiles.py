"""Symbols that were moved out of a program: .gnu_debugdata within it, and debug files beside it or by build id.

The places are those that gdb looks in ("Debugging Information in Separate Files"): ROOT/.build-id/ab/cdef.debug, and
for .gnu_debuglink the program's folder, its .debug folder, and ROOT plus the program's folder.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from shadowgraph.errors import UsageError
from shadowgraph.image import elf
from shadowgraph.image.elf import DamagedFile, ElfFile
from shadowgraph.image.image import Image, build_id_of, map_file

__all__ = [
    "DEBUG_ROOTS",
    "find_debug_file",
    "find_debug_path",
    "open_debug_data",
    "open_debug_file",
    "possible_debug_files",
]

DEBUG_ROOTS = ("/usr/lib/debug",)


def open_debug_data(image: Image) -> ElfFile | None:
    """The small ELF file in .gnu_debugdata (xz), which has the .symtab of a stripped program; None if there is none."""
    section = image.elf.section(".gnu_debugdata")
    if section is None:
        return None
    import lzma

    try:
        unpacked = lzma.decompress(image.elf.content(section).tobytes())
        return ElfFile(np.frombuffer(unpacked, np.uint8))
    except (lzma.LZMAError, DamagedFile) as problem:
        image.elf.remarks.append(f"The section .gnu_debugdata is unusable: {problem}.")
        return None


def find_debug_file(image: Image, roots: Sequence[str] = DEBUG_ROOTS) -> tuple[Path, ElfFile] | None:
    """The image's separate debug file if one is installed and belongs to this very build; else None."""
    for path in _places_by_id(image, roots):
        file = open_debug_file(path)
        if file is not None and build_id_of(file) == image.build_id:
            return path, file
    name, checksum = _debug_link(image)
    for path in _linked_places(image, name, roots):
        file = open_debug_file(path)
        if file is not None and zlib.crc32(file.data.data) == checksum:
            return path, file
    return None


def find_debug_path(image: Image, roots: Sequence[str] = DEBUG_ROOTS) -> Path | None:
    """Where :func:`find_debug_file` found it."""
    found = find_debug_file(image, roots)
    return found[0] if found else None


def possible_debug_files(image: Image, roots: Sequence[str] = DEBUG_ROOTS) -> list[Path]:
    """All places where the image's symbols are looked for if it has none itself, be there a file or not."""
    if image.elf.section_of_type(elf.SHT_SYMTAB) is not None:
        return []
    return [*_places_by_id(image, roots), *_linked_places(image, _debug_link(image)[0], roots)]


def open_debug_file(path: Path) -> ElfFile | None:
    """An ELF file, if there is one."""
    try:
        return ElfFile(map_file(str(path))) if path.is_file() else None
    except (UsageError, DamagedFile, OSError):
        return None


def _places_by_id(image: Image, roots: Sequence[str]) -> list[Path]:
    name = image.build_id
    return [Path(root, ".build-id", name[:2], name[2:] + ".debug") for root in roots] if name else []


def _debug_link(image: Image) -> tuple[str, int]:
    """File name and CRC-32 of .gnu_debuglink: a string, padding to four bytes, the checksum."""
    section = image.elf.section(".gnu_debuglink")
    if section is None:
        return "", 0
    try:
        data = image.elf.content(section)
    except DamagedFile:
        return "", 0
    name = elf.string_at(data, 0)
    checksum = data[(len(name) + 4) // 4 * 4 :][:4].tobytes()
    return name.decode("utf-8", "surrogateescape"), int.from_bytes(checksum, "little")


def _linked_places(image: Image, name: str, roots: Sequence[str]) -> Iterator[Path]:
    if not name:
        return
    folder = Path(image.path).resolve().parent
    yield folder / name
    yield folder / ".debug" / name
    for root in roots:
        yield Path(root, *folder.parts[1:], name)
