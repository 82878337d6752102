"""The ``when=`` of a user: compiled here, kept in the pool of the arena, evaluated in the target."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.registry import UserRow
from shadowgraph.ops.predicates import Predicate, compile_predicate
from shadowgraph.trace.ticks import ticks_per_second

__all__ = ["Condition"]


@dataclass(frozen=True)
class Condition:
    """A predicate of a user, or none (``predicate`` is None)."""

    predicate: Predicate | None

    @classmethod
    def of(cls, text: str | None) -> Condition:
        """Compile a predicate. UsageError, with a mark below the mistake, if it is none."""
        return cls(None if text is None else compile_predicate(text, round(ticks_per_second())))

    @property
    def needs_exit(self) -> bool:
        """Whether only the exit can decide."""
        return self.predicate is not None and self.predicate.needs_exit

    @property
    def size(self) -> int:
        """Bytes of the pool that its programs take."""
        if self.predicate is None:
            return 0
        return layout.PREDICATE_SIZE * (2 if self.predicate.needs_exit else 1)

    def added_to(self, row: UserRow, cells: Cells, at: int) -> UserRow:
        """The row of a user that has this condition, whose programs are put to ``at`` in the pool."""
        if self.predicate is None:
            return row
        fields = {**row.fields, **self._write(cells, at)}
        if self.predicate.needs_vectors:
            fields["flags"] = fields.get("flags", 0) | layout.USER_SEES_VECTORS
        leaves = self.predicate.needs_exit
        if leaves and row.kind in (layout.USER_HISTOGRAM, layout.USER_TOTALS):
            fields["data_size"] = 8  # an argument waits for the exit
        return replace(
            row,
            at_entry=True,
            at_exit=row.at_exit or leaves,
            with_data=row.with_data or leaves,
            is_conditional=True,
            is_timed=row.is_timed or self.predicate.needs_time,
            is_simple=False,
            fields=fields,
        )

    def _write(self, cells: Cells, at: int) -> dict[str, int]:
        """Put the programs into the pool; returns the fields of struct sg_user that name them."""
        if self.predicate is None:
            return {}
        pool, size = cells.arena.pool, layout.PREDICATE_SIZE
        entry, leave = self.predicate.entry_code, self.predicate.exit_code
        pool[at : at + len(entry)] = np.frombuffer(entry, np.uint8)
        if not leave:
            return {"entry_predicate": at}
        pool[at + size : at + size + len(leave)] = np.frombuffer(leave, np.uint8)
        return {"entry_predicate": at, "exit_predicate": at + size}
