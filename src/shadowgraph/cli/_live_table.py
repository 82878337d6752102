"""What `top` shows each time: the functions that were called, as a table or as JSON."""

from __future__ import annotations

import shlex
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shadowgraph.errors import ShadowgraphError

if TYPE_CHECKING:
    from shadowgraph.cli._session import Session
    from shadowgraph.live import Totals
    from shadowgraph.view.live import Function
    from shadowgraph.view.terminal import Output

__all__ = ["LiveTable"]

# An executable with no more functions than this, none of which is called, only starts what is in a library.
_FEW = 20


class LiveTable:
    """The rows as they were read last, how they are sorted, and which are shown."""

    def __init__(self, session: Session, totals: Totals, options: dict[str, Any]) -> None:
        self.sort: str = options["sort"]
        self.filter = ""
        self._session = session
        self._totals = totals
        self._options = options
        self._began = self._read_at = time.monotonic()
        self._before = totals.totals()
        self._seconds = 0.0
        self._rows: list[tuple[Function, dict[str, float]]] = []
        self._library = ""
        self._library_follows = False

    def read(self) -> None:
        """Read the numbers as they are now."""
        from shadowgraph.view.live import Function

        now, totals = time.monotonic(), self._totals.totals()
        self._seconds = max(now - self._read_at, 1e-9)
        self._rows = []
        for label, row in totals.items():
            before = self._before.get(label, {"count": 0, "total": 0.0})
            fields = {
                "calls": row["count"],
                "rate": (row["count"] - before["count"]) / self._seconds,
                "mean": row["total"] / row["count"] if row["count"] else 0.0,
                "max": row["max"],
                "time": (row["total"] - before["total"]) / self._seconds,
            }
            self._rows.append((Function(label, self._session.program, self._options["raw_names"]), fields))
        self._read_at, self._before, self._library_follows = now, totals, False
        if not self._options["functions"] and not self._library and self._is_silent():
            self._take_library()

    def _is_silent(self) -> bool:
        """Whether none of the functions was called, but in programs that children have executed."""
        session, rows = self._session, self._rows
        if session.target.has_followed:
            rows = [row for row in rows if row[0].module == session.program]
        return not any(row["calls"] for _, row in rows)

    def _take_library(self) -> None:
        """Nothing is called: if the executable is but a shell around a library, as python3 may be, show that too."""
        from shadowgraph.ops.remarks import is_runtime

        session = self._session
        own = sum(function.module == session.program for function, _ in self._rows)
        library = session.library
        if own > _FEW or not library or is_runtime(library):
            return
        with suppress(ShadowgraphError):  # the process has ended, or we have been taken off
            self._totals.replace_functions(["*", f"{library}!*"])
            self._library, self._library_follows = library, True

    def write(self, output: Output) -> None:
        """Write the rows that were called and that the filter lets pass."""
        from shadowgraph.view.live import write_totals
        from shadowgraph.view.units import count_of

        found, shown = self._chosen()
        said = [f"... and {count_of(len(found) - len(shown), 'more function')}"] if len(shown) < len(found) else []
        silent = sum(not row["calls"] for _, row in self._rows)
        if silent:
            said.append(f"{count_of(silent, 'function')} without a call")
        write_totals(output, shown, self.sort, "\n".join(said + [f"({remark})" for remark in self.remarks()]))

    def object(self) -> dict[str, Any]:
        """The same for JSON; times in nanoseconds."""
        found, shown = self._chosen()
        listed = [
            {
                **function.identity,
                "calls": row["calls"],
                "calls_per_s": round(row["rate"], 3),
                "mean_ns": round(row["mean"], 3),
                "max_ns": round(row["max"], 3),
                "time_per_s_ns": round(row["time"], 3),
            }
            for function, row in shown
        ]
        return {
            "seconds": round(self._read_at - self._began, 6),
            "interval": round(self._seconds, 6),
            "functions": listed,
            "more": len(found) - len(shown),
            "without_calls": sum(not row["calls"] for _, row in self._rows),
        }

    def _chosen(self) -> tuple[list[tuple[Function, dict[str, float]]], list[tuple[Function, dict[str, float]]]]:
        """The rows that were called and that the filter lets pass, sorted; and those of them that are shown."""
        wanted = self.filter.lower()
        found = [row for row in self._rows if row[1]["calls"] and wanted in row[0].title.lower()]
        found.sort(key=lambda row: (-row[1][self.sort], -row[1]["calls"], row[0].title))
        return found, found[: self._options["limit"] or None]

    def remarks(self) -> list[str]:
        """What there is to say of the choice of functions."""
        from shadowgraph.view.units import count_of

        said, left_out = self._nothing(), self._totals.left_out
        if left_out:
            said.append(f"{count_of(left_out, 'function')}, the shortest, left out: there are too many; -f chooses")
        if self._library:
            how = "follows" if self._library_follows else "is shown, too"
            said.append(f"none of the executable's few functions was called: {self._library} {how}")
        elif self._rows and self._is_silent() and self._means_all:
            said.append(self._elsewhere())
        return said

    @property
    def _means_all(self) -> bool:
        """Whether all of the executable was meant."""
        functions = self._options["functions"]
        return not functions or "*" in functions

    def _nothing(self) -> list[str]:
        """What there is to say of a table without a line: that it is to be so, and why."""
        if self._library_follows or not self._rows or any(row["calls"] for _, row in self._rows):
            return self._session.target.awaited
        idle = self._session.idle
        said = "no call of these has ended so far" + (f": {idle}" if idle else "")
        return [said, *self._session.target.awaited]

    def _elsewhere(self) -> str:
        """What to say when nothing that was chosen is called: where else most of the program's code is."""
        library = self._session.library
        if not library:
            return "functions of a library are named so: -f 'LIBRARY!*'"
        words = shlex.join(["shadowgraph", "top", str(self._session.target.pid), "-f", f"{library}!*"])
        return f"most code of its libraries is in {library}: {words}"
