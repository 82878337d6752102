"""What is loaded in a process: its modules, by file and load address."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.image.elf import HEADER, PROGRAM_HEADER, PT_LOAD
from shadowgraph.target.memory import PAGE, Mapping, read_mappings

__all__ = ["Module", "read_modules"]


@dataclass(frozen=True)
class Module:
    """A mapped ELF file. ``low`` and ``high`` bound its mappings; ``base`` is where file offset 0 is mapped.

    ``opened`` is the path itself or one under /proc/PID: what to open to read the very file that is mapped, were it
    even deleted, replaced by another one, or in another mount namespace.
    """

    path: str
    base: int
    low: int
    high: int
    opened: str

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return os.path.basename(self.path)


def read_modules(pid: int, mappings: list[Mapping] | None = None) -> list[Module]:
    """The ELF files mapped executable in a process, in the order of their addresses."""
    files: dict[tuple[str, int, str], list[Mapping]] = {}
    for mapping in read_mappings(pid) if mappings is None else mappings:
        if mapping.path.startswith("/"):
            files.setdefault((mapping.path, mapping.inode, mapping.device), []).append(mapping)
    candidates = [parts for parts in files.values() if any("x" in part.permissions for part in parts)]
    if not candidates:
        return []
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        loadings = [loading for parts in candidates for loading in _loadings(memory, parts)]
    finally:
        os.close(memory)
    return sorted((_module(pid, loading) for loading in loadings), key=lambda module: module.base)


def _loadings(memory: int, parts: list[Mapping]) -> list[list[Mapping]]:
    """The mappings of one file, in the order of their addresses, divided into its loadings with executable memory.

    dlmopen loads a file more than once, and programs map files, their own too, to read them. In a small file several
    segments may begin in the first page (mold does not give each a page of its own), so that one loading maps offset 0
    more than once: what belongs to a loading is told by its program headers.
    """
    loadings: list[tuple[_Segments, list[Mapping]]] = []
    for part in parts:
        loading = next((known for segments, known in loadings if segments.explain(known[0], part)), None)
        if loading is not None:
            loading.append(part)
        elif part.offset == 0 and (segments := _read_segments(memory, part, parts)) is not None:
            loadings.append((segments, [part]))
    return [known for _, known in loadings if any("x" in part.permissions for part in known)]


class _Segments:
    """Where the segments of a file lie, in memory and in the file, as its program headers (PT_LOAD) say."""

    def __init__(self, headers: npt.NDArray[np.void]) -> None:
        addresses, sizes, offsets = (headers[name].astype(np.int64) for name in ("address", "memory_size", "offset"))
        distances = addresses - offsets
        self._low = int(distances[offsets < PAGE].min())
        self._span = int((addresses + sizes).max()) - self._low
        # An address and an offset are the same within their pages (System V ABI, "Program Loading").
        self._distances = set(distances.tolist())

    def explain(self, first: Mapping, part: Mapping) -> bool:
        """Whether a mapping is of a segment, or a part of one, of the loading whose lowest mapping is ``first``."""
        start = part.start - first.start
        return start < self._span and self._low + start - part.offset in self._distances


def _read_segments(memory: int, first: Mapping, parts: list[Mapping]) -> _Segments | None:
    """The segments of the file whose offset 0 is mapped at ``first``; None if that is no ELF file.

    Code made at run time is in files too, of shared memory.
    """
    try:
        header = os.pread(memory, HEADER.size, first.start)
        if header[:4] != b"\x7fELF" or len(header) < HEADER.size:
            return None
        offset, size, count = (HEADER.unpack(header)[index] for index in (5, 9, 10))
        # They may lie anywhere in the file (patchelf moves them to its end), but always in what is loaded.
        holding = next((part for part in (first, *parts) if 0 <= offset - part.offset < part.end - part.start), first)
        table = os.pread(memory, size * count, holding.start + offset - holding.offset)
    except OSError:
        return None
    if size != PROGRAM_HEADER.itemsize or len(table) < size * count:
        return None
    headers = np.frombuffer(table, PROGRAM_HEADER)
    headers = headers[headers["type"] == PT_LOAD]
    return _Segments(headers) if (headers["offset"] < PAGE).any() else None


def _module(pid: int, parts: list[Mapping]) -> Module:
    first, high = parts[0], max(part.end for part in parts)
    # A link to the file itself, which needs rights (CAP_CHECKPOINT_RESTORE) that the others do not.
    mapped = f"/proc/{pid}/map_files/{first.start:x}-{first.end:x}"
    if _is_file(first.path, first):
        return Module(first.path, first.start, first.start, high, first.path)
    path = first.path.removesuffix(" (deleted)")
    for opened in (os.path.join(f"/proc/{pid}", "root", path[1:]), f"/proc/{pid}/exe", mapped):
        if _is_file(opened, first):
            return Module(path, first.start, first.start, high, opened)
    # Some file systems give mapped files other inode numbers (btrfs, overlayfs).
    exists = path == first.path and os.path.exists(path)
    return Module(path, first.start, first.start, high, path if exists else mapped)


def _is_file(path: str, mapping: Mapping) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return status.st_ino == mapping.inode and stat.S_ISREG(status.st_mode)
