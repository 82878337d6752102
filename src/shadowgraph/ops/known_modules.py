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
    lookup_dynamic,
    open_image,
    read_imports,
)
from shadowgraph.image.stored_functions import function_columns, functions_from
from shadowgraph.ops.module_cache import Identity, ModuleCache, identify
from shadowgraph.ops.name_index import NameIndex
from shadowgraph.ops.readable_forms import readable_forms
from shadowgraph.patch import ModulePlan
from shadowgraph.patch.stored_plan import plan_columns, plan_from
from shadowgraph.target.modules import Module

if TYPE_CHECKING:
    from shadowgraph.image.signatures import SignatureTable

__all__ = ["KnownModule", "KnownModules"]


_NEED_TRUE_RETURN = (Reason.RETURNS_TWICE, Reason.SWITCHES_STACKS, Reason.LOOKS_AT_RETURN_ADDRESS)

# With more than this part of its functions wanted, a module is planned as a whole. So is one of which more is wanted
# than before, and one whose plan will be kept, if it is not so large that this would take long.
_MOST = 0.3
_MANY = 20_000


@dataclass
class KnownModule:
    """One file. Everything of it is read when it is first asked for.

    ``opened`` is where it is read, ``path`` what it was loaded as.
    """

    opened: str
    path: str
    cache: ModuleCache = field(default_factory=ModuleCache)
    _plan: ModulePlan | None = None
    refusals: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    _exported: dict[str, int | None] = field(default_factory=dict)
    _names: dict[int, list[str]] = field(default_factory=dict)

    @cached_property
    def image(self) -> Image:
        """The ELF image."""
        return open_image(self.opened)

    @cached_property
    def functions(self) -> FunctionTable:
        """All its functions. Those of ``special`` are not refused in the table, so that they are planned."""
        functions = self._functions()
        self.refusals = functions.refused.copy()
        functions.refused = np.where(np.isin(self.refusals, _NEED_TRUE_RETURN), np.uint8(Reason.NONE), self.refusals)
        return functions

    def _functions(self) -> FunctionTable:
        known = self.cache.find(self._identity, "functions") if self._identity else None
        if known is not None:
            return functions_from(self.image, known)
        from shadowgraph.image import read_functions

        functions = read_functions(self.image)
        if self._identity:
            self.cache.keep(self._identity, "functions", function_columns(functions))
        return functions

    @cached_property
    def _identity(self) -> Identity | None:
        return identify(self.image, self.opened, self.path) if self.cache.usable else None

    @cached_property
    def special(self) -> npt.NDArray[np.bool_]:
        """Functions that must find their true return address also when a hooked function tail-calls them."""
        return np.isin(self.functions.refused, [Reason.NONE]) & np.isin(self.refusals, _NEED_TRUE_RETURN)

    def names(self, row: int) -> list[str]:
        """All names by which a user may mean a function: as in the file, and the forms of the readable one."""
        if row not in self._names:
            self._names[row] = [*self.functions.names(row), *self._readable.get(row, ())]
        return self._names[row]

    def readable_names(self) -> list[str]:
        """One name of each function, readable, without parameters and return type."""
        readable, names = self._readable, enumerate(self.functions.preferred_names)
        return [readable[row][-1] if row in readable else name for row, name in names]

    @cached_property
    def name_index(self) -> NameIndex:
        """All that :meth:`names` has of all functions."""
        functions = self.functions
        single = functions.aliases.single_names()
        names = [
            (name, row)
            for row in range(len(functions))
            for name in ([single[row]] if single[row] else functions.names(row))
        ]
        names += [(name, row) for row, readable in self._readable.items() for name in readable]
        return NameIndex(len(functions), names)

    @cached_property
    def _readable(self) -> dict[int, tuple[str, ...]]:
        names = self.functions.preferred_names
        rows = [row for row, name in enumerate(names) if name.startswith(("_Z", "_R"))]
        readable = demangle([names[row] for row in rows])
        return {row: readable_forms(text) for row, text in zip(rows, readable, strict=True)}

    def plan(self, rows: npt.NDArray[np.int64]) -> ModulePlan:
        """What can be hooked of these rows. The plan has a row for every function; others may be planned as well."""
        if self._plan is None:
            known = self.cache.find(self._identity, "plan") if self._identity else None
            if known is not None and len(known["reason"]) == len(self.functions):
                self._plan = plan_from(self.image.path, known)
                return self._plan
        if self._plan is None or (self._plan.reason[rows] == Reason.NOT_CHOSEN).any():
            self._plan = self._planned(rows)
        return self._plan

    def _planned(self, rows: npt.NDArray[np.int64]) -> ModulePlan:
        """A plan that knows these rows too. One of the whole module, made at once, is the same whoever asks for it."""
        from shadowgraph.patch import plan_module

        count, previous = len(self.functions), self._plan
        whole = len(rows) > _MOST * count or (count <= _MANY and (previous is not None or self._identity is not None))
        plan = plan_module(self.image, self.functions, None if whole else rows, previous)
        if whole and previous is None and self._identity is not None:
            self.cache.keep(self._identity, "plan", plan_columns(plan))
        return plan

    def exported(self, name: str) -> int | None:
        """The image address of an exported symbol, None if it exports none of this name: see lookup_dynamic()."""
        if name not in self._exported:
            self._exported[name] = lookup_dynamic(self.image, name)
        return self._exported[name]

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
        return self.image.bias(module.base)


class KnownModules:
    """Known modules by file identity."""

    def __init__(self) -> None:
        self.cache = ModuleCache()
        self._known: dict[tuple[int, int, int], KnownModule] = {}

    def get(self, module: Module) -> KnownModule:
        """What is known of a loaded module."""
        status = os.stat(module.opened)
        key = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if key not in self._known:
            self._known[key] = KnownModule(module.opened, module.path, self.cache)
        return self._known[key]

    def all(self) -> list[KnownModule]:
        """All modules met so far."""
        return list(self._known.values())

    def build_ids(self) -> dict[str, str]:
        """The build id of each of them by path."""
        return {known.path: known.image.build_id for known in self.all()}
