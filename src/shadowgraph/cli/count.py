"""`shadowgraph count`: how often functions of a running program are called."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from shadowgraph.cli._session import (
    OfCommand,
    Session,
    follow_option,
    functions_option,
    output_option,
    say_which,
    target_arguments,
    when_option,
)
from shadowgraph.cli._time import Time

if TYPE_CHECKING:
    from shadowgraph.view.live import Function
    from shadowgraph.view.terminal import Output

__all__ = ["command"]


@click.command(cls=OfCommand, short_help="How often functions of a running program are called.")
@functions_option
@when_option
@follow_option
@click.option("--for", "duration", type=Time(), metavar="TIME", help="Stop after this time (10s).")
@click.option("--interval", type=Time(), metavar="TIME", help="Print what has been counted each time this is over.")
@click.option(
    "--sort",
    type=click.Choice(["calls", "name"]),
    default="calls",
    show_default=True,
    help="What comes first: the most calls, or by name.",
)
@click.option("--limit", type=click.IntRange(0), default=0, help="Show so many functions, 0 for all.")
@click.option("--all-functions", is_flag=True, help="Show functions without a call, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@output_option
@click.option("--raw-names", is_flag=True, help="Show names as they are in the file, not demangled.")
@target_arguments
def command(words: tuple[str, ...], pid: int | None, **options: Any) -> int:
    """Count the calls of functions of a process (PID) that runs, or of a COMMAND that is started.

    It ends with the program, with --for, or with Ctrl-C; a process that was attached to runs on as it was.
    """
    if not options["functions"]:
        raise say_which("count", words)
    from shadowgraph.live import Counter
    from shadowgraph.view.terminal import Output

    output = Output(options["output"])
    with Session(words, pid, options["duration"], follow=options["follow"]) as session:
        counter = session.register(Counter(options["functions"], when=options["when"], name="count"))
        counts = _Counts(output, session, options)
        session.start()
        while session.wait(options["interval"]):
            counts.write(counter.counts())
            output.flush()
        session.leave()
        counts.write(counter.counts(), end=session.ending, remarks=session.remarks(), filtered=session.filtered)
        output.flush()
        session.say_remarks()
        session.see_out()
    return session.status


class _Counts:
    """The tables of one run."""

    def __init__(self, output: Output, session: Session, options: dict[str, Any]) -> None:
        self._output = output
        self._session = session
        self._options = options
        self._began = self._last = time.monotonic()
        self._before: dict[str, int] = {}
        self._tables = 0

    def write(
        self, counts: dict[str, int], *, end: str | None = None, remarks: list[str] | None = None, filtered: int = 0
    ) -> None:
        """A table of what has been counted so far."""
        from shadowgraph.view.live import write_counts, write_json

        now, options = time.monotonic(), self._options
        seconds = max(now - self._last, 1e-9)
        rows = [
            (self._function(label), calls, (calls - self._before.get(label, 0)) / seconds)
            for label, calls in counts.items()
            if calls or options["all_functions"]
        ]
        rows.sort(key=lambda row: (-row[1] if options["sort"] == "calls" else 0, row[0].title))
        shown = rows[: options["limit"] or None]
        if options["as_json"]:
            listed = [{**function.identity, "calls": calls} for function, calls, _ in shown]
            left = {"more": len(rows) - len(shown), "without_calls": len(counts) - len(rows)}
            content: dict[str, Any] = {"seconds": round(now - self._began, 6), "functions": listed, **left}
            if end is not None:
                content |= {"filtered": filtered, "end": end, "problems": remarks or []}
            write_json(self._output, content)
        else:
            if self._tables:
                self._output.line()
            with_rates = options["interval"] is not None
            lines = [(function, calls, rate if with_rates else None) for function, calls, rate in shown]
            left_out = self._left_out(len(rows) - len(shown), len(counts) - len(rows))
            if not any(counts.values()) and self._session.filtered:
                left_out.append("--when left out all calls of these")
            elif not any(counts.values()):
                when = " so far" if end is None else ""
                idle = f": {self._session.idle}" if self._session.idle else ""
                where = self._session.where_else(options["functions"])
                left_out.append(f"none of these was called{when}{idle}{where}")
            write_counts(self._output, lines, "\n".join(left_out))
        self._before, self._last = counts, now
        self._tables += 1

    def _left_out(self, more: int, silent: int) -> list[str]:
        from shadowgraph.view.units import count_of

        said = [f"... and {count_of(more, 'more function')} (--limit 0 shows all)"] if more else []
        if silent:
            said.append(f"{count_of(silent, 'function')} without a call left out (--all-functions shows all)")
        return said

    def _function(self, label: str) -> Function:
        from shadowgraph.view.live import Function

        return Function(label, self._session.program, self._options["raw_names"])
