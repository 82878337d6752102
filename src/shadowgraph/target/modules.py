"""What is loaded in a process: its modules, by file and load address."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from shadowgraph.target.memory import Mapping, read_mappings

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
    loadings = [parts for file in files.values() for parts in _loadings(file)]
    if not loadings:
        return []
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        modules = [_module(pid, parts) for parts in loadings if _is_elf(memory, parts[0].start)]
    finally:
        os.close(memory)
    return sorted(modules, key=lambda module: module.base)


def _loadings(parts: list[Mapping]) -> list[list[Mapping]]:
    """The mappings of one file, divided into its loadings: dlmopen may load a file more than once.

    A loading begins at offset 0 and has executable memory. Further segments of it may begin in the file's first page.
    """
    loadings: list[list[Mapping]] = []
    for part in parts:
        if part.offset == 0 or not loadings:
            loadings.append([])
        loadings[-1].append(part)
    merged: list[list[Mapping]] = []
    for loading in loadings:
        if merged and not any("x" in part.permissions for part in loading):
            merged[-1] += loading
        else:
            merged.append(loading)
    return [loading for loading in merged if loading[0].offset == 0 and any("x" in p.permissions for p in loading)]


def _is_elf(memory: int, address: int) -> bool:
    """Whether an ELF file is mapped there: code made at run time is in files too, of shared memory."""
    try:
        return os.pread(memory, 4, address) == b"\x7fELF"
    except OSError:
        return False


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
