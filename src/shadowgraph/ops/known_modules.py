"""Images, function tables and plans of the modules met so far: made once each, however many processes use them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shadowgraph.image import (
    FunctionTable,
    Image,
    Import,
    Reason,
    demangle,
    open_image,
    read_functions,
    read_imports,
)
from shadowgraph.ops.selection import without_parameters
from shadowgraph.patch import ModulePlan, plan_module
from shadowgraph.target.memory import PAGE
from shadowgraph.target.modules import Module

if TYPE_CHECKING:
    from shadowgraph.image.signatures import SignatureTable

__all__ = ["KnownModule", "KnownModules"]


_NEED_TRUE_RETURN = (Reason.RETURNS_TWICE, Reason.SWITCHES_STACKS, Reason.LOOKS_AT_RETURN_ADDRESS)

# With more than this part of its functions wanted, a module is planned as a whole.
_MOST = 0.3


@dataclass
class KnownModule:
    """One file. Everything of it is read when it is first asked for.

    ``opened`` is where it is read, ``path`` what it was loaded as.
    """

    opened: str
    path: str
    _plan: ModulePlan | None = None
    refusals: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))

    @cached_property
    def image(self) -> Image:
        """The ELF image."""
        return open_image(self.opened)

    @cached_property
    def functions(self) -> FunctionTable:
        """All its functions. Those of ``special`` are not refused in the table, so that they are planned."""
        functions = read_functions(self.image)
        self.refusals = functions.refused.copy()
        functions.refused[np.isin(self.refusals, _NEED_TRUE_RETURN)] = Reason.NONE
        return functions

    @cached_property
    def special(self) -> npt.NDArray[np.bool_]:
        """Functions that must find their true return address also when a hooked function tail-calls them."""
        return np.isin(self.functions.refused, [Reason.NONE]) & np.isin(self.refusals, _NEED_TRUE_RETURN)

    def names(self, row: int) -> list[str]:
        """All names by which a user may mean a function: as in the file, readable, and that without its parameters."""
        return [*self.functions.names(row), *self._readable.get(row, ())]

    def readable_names(self) -> list[str]:
        """One name of each function, readable and without parameters."""
        readable, names = self._readable, enumerate(self.functions.preferred_names)
        return [readable[row][1] if row in readable else name for row, name in names]

    @cached_property
    def _readable(self) -> dict[int, tuple[str, str]]:
        names = self.functions.preferred_names
        rows = [row for row, name in enumerate(names) if name.startswith(("_Z", "_R"))]
        readable = demangle([names[row] for row in rows])
        return {row: (text, without_parameters(text)) for row, text in zip(rows, readable, strict=True)}

    def plan(self, rows: npt.NDArray[np.int64]) -> ModulePlan:
        """What can be hooked of these rows. The plan has a row for every function; others may be planned as well."""
        if self._plan is None or not self._planned[rows].all():
            self._planned[rows] = True
            if self._planned.mean() > _MOST:
                self._planned[:] = True
            self._plan = plan_module(self.image, self.functions, np.flatnonzero(self._planned), self._plan)
        return self._plan

    @cached_property
    def _planned(self) -> npt.NDArray[np.bool_]:
        return np.zeros(len(self.functions), np.bool_)

    @cached_property
    def imports(self) -> list[Import]:
        """The functions it imports."""
        return read_imports(self.image)

    @cached_property
    def signatures(self) -> SignatureTable:
        """What debug information says of parameters and results."""
        from shadowgraph.image.signatures import read_signatures

        return read_signatures(self.image)

    def bias(self, module: Module) -> int:
        """What to add to an image address for this loading of the module."""
        # The linker may leave the headers out of the first segment (-n): it begins later in the file's first page.
        first = min(part.address - part.file_offset for part in self.image.segments if part.file_offset < PAGE)
        return module.base - first


class KnownModules:
    """Known modules by file identity."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], KnownModule] = {}

    def get(self, module: Module) -> KnownModule:
        """What is known of a loaded module."""
        status = os.stat(module.opened)
        key = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if key not in self._known:
            self._known[key] = KnownModule(module.opened, module.path)
        return self._known[key]

    def all(self) -> list[KnownModule]:
        """All modules met so far."""
        return list(self._known.values())
