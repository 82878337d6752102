"""`shadowgraph top`: a live table of the functions of a running program."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from shadowgraph.cli._session import Session, Time, functions_option, pid_argument, when_option

if TYPE_CHECKING:
    from shadowgraph.cli._screen import Screen
    from shadowgraph.live import Totals
    from shadowgraph.view.terminal import Output

__all__ = ["command"]

_KEYS = {"c": "calls", "r": "rate", "l": "mean", "m": "max"}
_SORTS = list(_KEYS.values())
_HELP = "sort by: c calls  r calls/s  l latency (mean)  m max    / filter    q quit"
_ENTER, _ESCAPE, _BACKSPACE = "\r\n", "\033", "\x7f\b"


@click.command(short_help="A live table of the functions of a running program.")
@functions_option
@when_option
@click.option(
    "--interval", type=Time(), default="1s", show_default=True, metavar="TIME", help="How often it is renewed."
)
@click.option("--iterations", type=click.IntRange(1), metavar="N", help="End after N tables.")
@click.option(
    "--sort",
    type=click.Choice(_SORTS),
    default="rate",
    show_default=True,
    help="Which function comes first at the start.",
)
@click.option("--limit", type=click.IntRange(0), default=0, help="Show so many functions, 0 for all.")
@click.option("--raw-names", is_flag=True, help="Show names as they are in the file, not demangled.")
@pid_argument
def command(pid: int, **options: Any) -> int:
    """Show the functions of the process PID with calls, calls a second, mean and longest call, again and again.

    By default these are all functions of the executable, and what it calls of libraries. On a terminal, keys sort and
    filter; elsewhere one table follows the other. q, Ctrl-C or the end of the process end it, and the process runs on
    as it was.
    """
    from shadowgraph.live import Totals

    with Session([], pid) as session:
        totals = session.register(Totals(options["functions"] or ["*"], when=options["when"], name="top"))
        session.start()
        table = _Table(session.program, totals, options, _elsewhere(session))
        if sys.stdout is not None and sys.stdout.isatty() and sys.stdin is not None and sys.stdin.isatty():
            from shadowgraph.cli._screen import Screen

            with Screen() as screen:
                _Shown(screen, session, table, options).run()
        else:
            _print(session, table, options)
    if session.ending == "exit":
        click.echo(f"shadowgraph: process {pid} has ended", err=True)
    session.say_remarks()
    return 0


def _elsewhere(session: Session) -> str:
    """What to say when nothing that was chosen is called: where else most of the program's code is, as in python3."""
    library, pid = session.target.largest_library, session.target.pid
    if not library:
        return "(functions of a library are named so: -f 'LIBRARY!*')"
    words = shlex.join(["shadowgraph", "top", str(pid), "-f", f"{library}!*"])
    return f"(most code of its libraries is in {library}: {words})"


def _print(session: Session, table: _Table, options: dict[str, Any]) -> None:
    """One table after the other."""
    from shadowgraph.view.terminal import Output

    output = Output()
    number = 0
    while number != options["iterations"] and session.wait(options["interval"]):
        table.read()
        if number:
            output.line()
        table.write(output)
        output.flush()
        number += 1


class _Table:
    """The rows as they were read last, how they are sorted, and which are shown."""

    def __init__(self, program: str, totals: Totals, options: dict[str, Any], elsewhere: str) -> None:
        self._elsewhere = elsewhere
        self._program = program
        self._totals = totals
        self._options = options
        self.sort: str = options["sort"]
        self.filter = ""
        self._read_at = time.monotonic()
        self._before = totals.totals()
        self._rows: list[tuple[Any, dict[str, float]]] = []

    def read(self) -> None:
        """Read the numbers as they are now."""
        from shadowgraph.view.live import Function

        now, totals = time.monotonic(), self._totals.totals()
        seconds = max(now - self._read_at, 1e-9)
        self._rows = []
        for label, row in totals.items():
            before = self._before.get(label, {"count": 0, "total": 0.0})
            fields = {
                "calls": row["count"],
                "rate": (row["count"] - before["count"]) / seconds,
                "mean": row["total"] / row["count"] if row["count"] else 0.0,
                "max": row["max"],
                "share": (row["total"] - before["total"]) / (1e9 * seconds),
            }
            self._rows.append((Function(label, self._program, self._options["raw_names"]), fields))
        self._read_at, self._before = now, totals

    def write(self, output: Output) -> None:
        """Write the rows that were called and that the filter lets pass."""
        from shadowgraph.view.live import write_totals
        from shadowgraph.view.units import count_of

        wanted = self.filter.lower()
        called = [row for row in self._rows if row[1]["calls"]]
        found = [row for row in called if wanted in row[0].title.lower()]
        found.sort(key=lambda row: (-row[1][self.sort], -row[1]["calls"], row[0].title))
        shown = found[: self._options["limit"] or None]
        said = [f"... and {count_of(len(found) - len(shown), 'more function')}"] if len(shown) < len(found) else []
        if len(called) < len(self._rows):
            said.append(f"{count_of(len(self._rows) - len(called), 'function')} without a call")
        if not called:
            said.append(self._elsewhere)
        write_totals(output, shown, self.sort, "\n".join(said))


class _Shown:
    """The table on a terminal."""

    def __init__(self, screen: Screen, session: Session, table: _Table, options: dict[str, Any]) -> None:
        self._screen = screen
        self._session = session
        self._table = table
        self._interval: float = options["interval"]
        self._left: int | None = options["iterations"]
        self._typing = False
        self._quit = False

    def run(self) -> None:
        """Show it until somebody or something ends it."""
        table = self._table
        due = time.monotonic() + self._interval
        self._draw()
        while not self._quit and self._session.wait(0):
            typed = self._screen.keys(min(due - time.monotonic(), 0.2))
            for key in typed or "":
                self._press(key)
            if time.monotonic() >= due:
                due += self._interval
                table.read()
                if self._left is not None:
                    self._left -= 1
                    self._quit = self._quit or not self._left
                typed = ""
            if typed is not None:
                self._draw()

    def _press(self, key: str) -> None:
        if key == _ESCAPE:
            self._typing, self._table.filter = False, ""
        elif not self._typing:
            self._typing = key == "/"
            self._quit = self._quit or key == "q"
            self._table.sort = _KEYS.get(key, self._table.sort)
        elif key in _ENTER:
            self._typing = False
        elif key in _BACKSPACE:
            self._table.filter = self._table.filter[:-1]
        elif key.isprintable():
            self._table.filter += key

    def _draw(self) -> None:
        lines = self._screen.lines()
        target = self._session.target
        lines.line(f"process {target.pid} ({self._session.program}), every {self._interval:g} s")
        self._table.write(lines)
        last = _HELP
        if self._typing or self._table.filter:
            last = f"filter: {self._table.filter}" + ("█" if self._typing else "    / change  / Esc clear  q quit")
        self._screen.draw(lines.lines, last)
