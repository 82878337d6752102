"""What a selection chooses in a process that has loaded nothing since something was chosen there.

It is found in indexes of names, without a look at each function: one more user of many functions comes quickly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.inject import is_agent
from shadowgraph.agent.number_sets import distinct, either, without
from shadowgraph.ops.choices import Choice, Chosen
from shadowgraph.ops.entering import rows_wanted
from shadowgraph.ops.known_modules import KnownModule, KnownModules
from shadowgraph.ops.name_index import NameIndex
from shadowgraph.ops.selection import LibraryCalls, Selection
from shadowgraph.target.modules import Module

__all__ = ["ChosenAgain", "ImportIndex", "choose_again", "index_imports"]

_Rows = npt.NDArray[np.int64]
_NONE: _Rows = np.zeros(0, np.int64)


@dataclass(frozen=True)
class ImportIndex:
    """The functions of one library that the executable imports: their rows, and by which names; each in ``names``."""

    module: Module
    known: KnownModule
    rows: _Rows
    called: list[str]
    names: NameIndex


@dataclass(frozen=True)
class ChosenAgain:
    """Rows of one module that are wanted: ``own`` for their own sake, ``imported`` since the executable calls them.

    ``names`` has what it calls them.
    """

    module: Module
    known: KnownModule
    own: _Rows
    own_flags: int
    imported: _Rows
    import_flags: int
    names: dict[int, str]

    @cached_property
    def rows(self) -> _Rows:
        """All of them, in order."""
        return either(self.own, self.imported)

    @cached_property
    def callers(self) -> _Rows:
        """Those of which only calls from the executable are wanted."""
        if not self.import_flags & layout.FLAG_CALLER:
            return _NONE
        return without(self.imported, self.own)

    def choice(self) -> Choice:
        """The same with a place for each of them, for those who have something to say of each."""
        flags = dict.fromkeys(self.imported.tolist(), self.import_flags) | dict.fromkeys(
            self.own.tolist(), self.own_flags
        )
        return Choice(self.module, self.known, flags, names=dict(self.names))


def index_imports(chosen: Chosen, known_modules: KnownModules) -> dict[str, ImportIndex]:
    """What the executable imports, by the path of the library."""
    by_module: dict[str, list[tuple[str, Module, int]]] = {}
    for one in chosen.imports:
        by_module.setdefault(one[1].path, []).append(one)
    found = {}
    for path, imports in by_module.items():
        module = imports[0][1]
        known = known_modules.get(module)
        names = [
            (name, at)
            for at, (imported, _, row) in enumerate(imports)
            for name in dict.fromkeys([imported, *known.names(row)])
        ]
        rows = np.array([row for _, _, row in imports], np.int64)
        called = [name for name, _, _ in imports]
        found[path] = ImportIndex(module, known, rows, called, NameIndex(len(imports), names))
    return found


def choose_again(
    chosen: Chosen, imports: dict[str, ImportIndex], selection: Selection, known_modules: KnownModules
) -> Iterator[ChosenAgain]:
    """What a selection chooses there, without what is hooked for the agent's own needs."""
    import_flags = layout.FLAG_CALLER if selection.libcalls == LibraryCalls.DIRECT else 0
    default = selection.everything or not selection.starts_empty
    for module in chosen.modules:
        is_executable = module is chosen.executable
        index = imports.get(module.path)
        touched = not is_agent(module) and (is_executable or selection.touches(module.name))
        if not touched and index is None:
            continue
        known = known_modules.get(module)
        own = rows_wanted(module, known, selection, is_executable=is_executable) if touched else _NONE
        imported, names = _NONE, {}
        if index is not None:
            hits = np.flatnonzero(index.names.wanted(selection, module.name, default=default))
            imported = distinct(np.sort(index.rows[hits]))
            for at in reversed(hits.tolist()):  # the first name counts
                names[int(index.rows[at])] = index.called[at]
        own_flags = layout.FLAG_EXECUTABLE if is_executable else 0
        yield ChosenAgain(module, known, own, own_flags, imported, import_flags, names)
