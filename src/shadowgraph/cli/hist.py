"""`shadowgraph hist`: how long calls of a running program take, what they return, or what they are given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from shadowgraph.cli._once import once
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
    from shadowgraph.live import Histogram
    from shadowgraph.view.live import Distribution
    from shadowgraph.view.terminal import Output

__all__ = ["command"]

_STEPS = 16


@click.command(cls=OfCommand, short_help="How long calls of a running program take, or what they are given.")
@functions_option
@when_option
@once(
    "--value",
    "each `hist` shows one value, and several may run on one process at once",
    default="duration",
    metavar="duration|result|arg(N)",
    help="What is measured: the time of each call, what it returns, or its integer argument N (0 to 63). Of a narrow "
    "type: 'i32(result)', 'u8(arg(1))', with i or u and 8, 16, 32 or 64 bits. Of floating-point: 'fresult', 'farg(0)', "
    "'f32(fresult)', 'f32(farg(0))'.  [default: duration]",
)
@follow_option
@click.option("--for", "duration", type=Time(), metavar="TIME", help="Stop after this time (10s).")
@click.option(
    "--sort",
    type=click.Choice(["count", "total", "mean", "p50", "p90", "p99", "max", "name"]),
    default="count",
    show_default=True,
    help="Which function comes first.",
)
@click.option("--limit", type=click.IntRange(0), default=0, help="Show so many functions, 0 for all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@output_option
@click.option("--raw-names", is_flag=True, help="Show names as they are in the file, not demangled.")
@target_arguments
def command(words: tuple[str, ...], pid: int | None, **options: Any) -> int:
    """Show how a value is distributed over the calls of functions of a process (PID), or of a COMMAND that is started.

    It ends with the program, with --for, or with Ctrl-C; a process that was attached to runs on as it was.
    """
    if not options["functions"]:
        raise say_which("measure", words)
    from shadowgraph.live import Histogram
    from shadowgraph.view.terminal import Output

    output = Output(options["output"])
    histogram = Histogram(options["functions"], value=options["value"], when=options["when"], name="hist")
    with Session(words, pid, options["duration"], follow=options["follow"]) as session:
        session.register(histogram)
        session.start()
        session.wait()
        session.leave()
        _write(output, histogram, session, options)
        session.say_remarks()
        session.see_out()
    return session.status


def _write(output: Output, histogram: Histogram, session: Session, options: dict[str, Any]) -> None:
    """What has been measured."""
    found, silent = _distributions(histogram, session.program, options)
    shown = found[: options["limit"] or None]
    left = {"more": len(found) - len(shown), "without_calls": silent}
    if options["as_json"]:
        from shadowgraph.view.live import write_json

        functions = [_record(one, histogram) for one in shown]
        content = {"value": options["value"], "functions": functions, **left}
        write_json(
            output, {**content, "filtered": session.filtered, "end": session.ending, "problems": session.remarks()}
        )
    else:
        from shadowgraph.view.live import write_distributions
        from shadowgraph.view.units import count_of, format_time

        show = _short if histogram.is_float else format_time if options["value"] == "duration" else _number
        write_distributions(output, shown, show)
        if left["more"]:
            output.line(f"... and {count_of(left['more'], 'more function')} (--limit 0 shows all)")
        if silent:
            output.line(f"{count_of(silent, 'function')} without a call left out")
        if not found and session.filtered:
            output.line("--when left out all calls of these")
        elif not found:
            idle = f": {session.idle}" if session.idle else ""
            output.line(f"no call of these has ended meanwhile{idle}{session.where_else(options['functions'])}")
    output.flush()


def _distributions(histogram: Histogram, program: str, options: dict[str, Any]) -> tuple[list[Distribution], int]:
    """What there is of each function that was called, sorted, and how many were not."""
    from shadowgraph.view.live import Distribution, Function

    summaries = histogram.all_percentiles()
    found = [
        Distribution(Function(label, program, options["raw_names"]), summary, histogram.spread(label, _STEPS))
        for label, summary in summaries.items()
        if summary["count"] or any(summary.get(name) for name in ("nan", "plus_infinity", "minus_infinity"))
    ]
    sort = options["sort"]
    if sort == "name":
        found.sort(key=lambda one: one.function.title)
    else:
        found.sort(key=lambda one: (-_key(one, sort), one.function.title))
    return found, len(summaries) - len(found)


def _key(one: Distribution, sort: str) -> float:
    found = one.summary["count"] * one.summary["mean"] if sort == "total" else one.summary[sort]
    return found if math.isfinite(found) else 0.0


def _record(one: Distribution, histogram: Histogram) -> dict[str, Any]:
    unit = "_ns" if histogram.value == "duration" else ""
    summary = {name if name == "count" else name + unit: value for name, value in one.summary.items()}
    return {**one.function.identity, **summary, "buckets": histogram.buckets(one.function.label)}


def _short(value: float) -> str:
    """A floating-point value."""
    return f"{value:.6g}"


def _number(value: float) -> str:
    """A value that is no time; 0x… for what is larger than most numbers are, which may be an address."""
    return f"{value:,.1f}" if value != int(value) and abs(value) < 1e6 else f"{int(value):,}"
