"""What is loaded in a process: its modules, by file and load address."""

from __future__ import annotations

import os
from dataclasses import dataclass

from shadowgraph.target.memory import Mapping, read_mappings

__all__ = ["Module", "read_modules"]


@dataclass(frozen=True)
class Module:
    """A mapped ELF file. ``low`` and ``high`` bound its mappings; ``base`` is where file offset 0 is mapped.

    ``opened`` is a path under /proc/PID/map_files or the path itself: what to open to read the very file that is
    mapped, were it even deleted or in another mount namespace.
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
    groups: dict[str, list[Mapping]] = {}
    for mapping in read_mappings(pid) if mappings is None else mappings:
        if mapping.path.startswith("/"):
            groups.setdefault(mapping.path, []).append(mapping)
    modules = []
    for path, parts in groups.items():
        first = next((part for part in parts if part.offset == 0), None)
        if first is None or not any("x" in part.permissions for part in parts):
            continue
        clean = path.removesuffix(" (deleted)")
        opened = clean if os.path.exists(clean) else f"/proc/{pid}/map_files/{first.start:x}-{first.end:x}"
        modules.append(Module(clean, first.start, first.start, max(part.end for part in parts), opened))
    return sorted(modules, key=lambda module: module.base)
