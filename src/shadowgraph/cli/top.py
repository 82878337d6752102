"""`shadowgraph top`: a live table of the functions of a running program."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from shadowgraph.cli._live_table import LiveTable
from shadowgraph.cli._session import (
    Session,
    follow_option,
    functions_option,
    output_option,
    pid_argument,
    when_option,
)
from shadowgraph.cli._time import Time

if TYPE_CHECKING:
    from shadowgraph.cli._screen import Screen
    from shadowgraph.view.terminal import Output

__all__ = ["command"]

_KEYS = {"c": "calls", "r": "rate", "l": "mean", "m": "max", "t": "time"}
_SORTS = list(_KEYS.values())
_HELP = "sort by: c calls  r calls/s  l latency (mean)  m max  t time/s    / filter    q quit"
_MOST = 60_000  # functions, all of which are read each time
_ENTER, _ESCAPE, _BACKSPACE = "\r\n", "\033", "\x7f\b"


@click.command(short_help="A live table of the functions of a running program.")
@functions_option
@when_option
@click.option(
    "--interval", type=Time(), default="1s", show_default=True, metavar="TIME", help="How often it is renewed."
)
@click.option("--iterations", type=click.IntRange(1), metavar="N", help="End after N tables.")
@follow_option
@click.option("--for", "duration", type=Time(), metavar="TIME", help="End after this time (10s).")
@click.option(
    "--sort",
    type=click.Choice(_SORTS),
    default="rate",
    show_default=True,
    help="Which function comes first at the start.",
)
@click.option("--limit", type=click.IntRange(0), default=0, help="Show so many functions, 0 for all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object on a line for each table.")
@output_option
@click.option("--raw-names", is_flag=True, help="Show names as they are in the file, not demangled.")
@pid_argument
def command(pid: int, **options: Any) -> int:
    """Show the functions of the process PID with calls, calls a second, mean and longest call, again and again.

    By default these are all functions of the executable, and what it calls of libraries. On a terminal, keys sort and
    filter; elsewhere one table follows the other. q, Ctrl-C or the end of the process end it, and the process runs on
    as it was.
    """
    from shadowgraph.live import Totals
    from shadowgraph.view.terminal import Output

    output = Output(options["output"])
    with Session([], pid, options["duration"], follow=options["follow"]) as session:
        totals = Totals(options["functions"] or ["*"], when=options["when"], name="top", most=_MOST)
        session.register(totals)
        session.start()
        table = LiveTable(session, totals, options)
        if output.terminal and not options["as_json"] and sys.stdin is not None and sys.stdin.isatty():
            from shadowgraph.cli._screen import Screen

            with Screen() as screen:
                _Shown(screen, session, table, options).run()
        else:
            _print(session, table, options, output)
    if session.ending == "exit":
        click.echo(f"shadowgraph: process {pid} has ended", err=True)
    session.say_remarks()
    return 0


def _print(session: Session, table: LiveTable, options: dict[str, Any], output: Output) -> None:
    """One table after the other, and one of what came after the last when it ends."""
    from shadowgraph.view.live import write_json

    number, goes_on = 0, True
    while goes_on:
        goes_on = session.wait(options["interval"])
        table.read()
        number += 1
        goes_on = goes_on and number != options["iterations"]
        if options["as_json"]:
            content = table.object()
            if not goes_on:
                session.leave()
                remarks = [*table.remarks(), *session.remarks()]
                content |= {"filtered": session.filtered, "end": session.ending or "iterations", "problems": remarks}
            write_json(output, content)
        else:
            if number > 1:
                output.line()
            table.write(output)
        output.flush()


class _Shown:
    """The table on a terminal."""

    def __init__(self, screen: Screen, session: Session, table: LiveTable, options: dict[str, Any]) -> None:
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
