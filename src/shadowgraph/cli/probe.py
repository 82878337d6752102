"""`shadowgraph probe`: handlers in C on functions of a running program, and the events that they emit."""

from __future__ import annotations

import re
import time
from pathlib import Path
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
from shadowgraph.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from shadowgraph.live import Ops
    from shadowgraph.view.live import Function
    from shadowgraph.view.terminal import Output

__all__ = ["command"]

_USUAL_NAMES = ("on_entry", "on_exit")
_FIELD = re.compile(r"([A-Za-z_]\w*):([iu][1248]|f[48]|S[1-9]\d{0,3})", re.ASCII)
_TYPES = "i1 i2 i4 i8 u1 u2 u4 u8 (whole numbers of so many bytes), f4 f8 (float, double), S16 (a text in 16 bytes)"
_LOOK_SECONDS = 0.02
_OWN_FIELDS = {"time", "thread", "function"}


@click.command(cls=OfCommand, short_help="Your own handlers in C on functions of a running program.")
@functions_option
@click.option("--source", type=click.Path(path_type=Path), metavar="FILE.c", help="The handlers: a file in C.")
@click.option("--code", metavar="TEXT", help="The handlers: C, on the command line.")
@click.option("--object", "library", type=click.Path(), metavar="FILE.so", help="The handlers: a shared object.")
@click.option("--entry", metavar="NAME", help="The handler of entries (default: on_entry, if there is one).")
@click.option("--exit", metavar="NAME", help="The handler of exits (default: on_exit, if there is one).")
@click.option("--data-size", type=click.IntRange(0), default=0, help="Bytes to keep from a call's entry to its exit.")
@click.option("--instances", type=click.IntRange(0), default=0, help="How many pieces of memory calls share, one each.")
@click.option("--instance-size", type=click.IntRange(0), default=0, help="Bytes of each of them, 65,536 at most.")
@when_option
@click.option(
    "--event", metavar="FIELDS", default="", help=f"What a record that is emitted has: 'fd:i4,size:u8'. {_TYPES}."
)
@follow_option
@click.option("--for", "duration", type=Time(), metavar="TIME", help="Stop after this time (10s).")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each event.")
@output_option
@click.option("--raw-names", is_flag=True, help="Show names as they are in the file, not demangled.")
@target_arguments
def command(words: tuple[str, ...], pid: int | None, **options: Any) -> int:
    """Call your own C functions when functions of a process (PID) or of a COMMAND are entered and left.

    What they emit with sg_emit() is printed while it comes. It ends with the program, with --for, or with Ctrl-C; a
    process that was attached to runs on as it was.
    """
    if not options["functions"]:
        raise say_which("probe", words)
    from shadowgraph.view.terminal import Output

    output = Output(options["output"])
    ops = _ops(options)
    if ops.handlers.warnings:
        click.echo(ops.handlers.warnings, err=True)
    if ops.unprovided:
        click.echo(f"shadowgraph: {_as_options(ops.unprovided)}", err=True)
    with Session(words, pid, options["duration"], follow=options["follow"]) as session:
        session.register(ops)
        events = _Events(output, ops, session.program, options)
        session.start()
        for batch in ops.events(wait=lambda: events.tell_fault() and session.wait(_LOOK_SECONDS)):
            events.write(batch)
            if not session.wait(0):
                break
        session.target.unregister(ops)
        for batch in ops.events():
            events.write(batch)
        session.leave()
        events.end(session)
        session.see_out()
    return session.status


def _ops(options: dict[str, Any]) -> Ops:
    """The handlers, compiled and checked before any process is touched."""
    from shadowgraph.live import Ops

    if sum(options[name] is not None for name in ("source", "code", "library")) != 1:
        raise UsageError("say what the handlers are: --source FILE.c, --code 'C text' or --object FILE.so")
    fields = _fields(options["event"])
    given = {name: options[name] for name in ("data_size", "instances", "instance_size", "when")}
    given |= {"events": fields, "name": "probe"}
    if options["library"] is not None:
        content = _read(Path(options["library"]))
        entry, leave = _handlers(options, [name for name in _USUAL_NAMES if b"\0%b\0" % name.encode() in content])
        return Ops(options["functions"], path=options["library"], entry=entry, exit=leave, **given)
    file, source = "", options["code"]
    if source is None:
        file, source = str(options["source"]), _read(options["source"]).decode(errors="surrogateescape")
    entry, leave = _handlers(options, [name for name in _USUAL_NAMES if re.search(rf"\b{name}\s*\(", source)])
    return Ops(options["functions"], source=source, file=file, entry=entry, exit=leave, **given)


def _as_options(text: str) -> str:
    """A sentence with what are arguments in Python as they are written on the command line."""
    return re.sub(r"\b(data|instance)_size\b|\binstances\b", lambda name: "--" + name[0].replace("_", "-"), text)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None


def _handlers(options: dict[str, Any], usual: list[str]) -> tuple[str, str]:
    """The names of the handlers: those that were given, or else those of the usual names that there are."""
    entry, leave = options["entry"], options["exit"]
    if entry is None and leave is None:
        entry, leave = (name if name in usual else "" for name in _USUAL_NAMES)
        if not usual:
            raise UsageError(
                "there is neither a function on_entry nor on_exit; name the handlers with --entry and --exit"
            )
    return entry or "", leave or ""


def _fields(text: str) -> np.dtype[np.void]:
    """The fields of a record, laid out as those of a struct in C."""
    from shadowgraph.live.events import event_dtype

    fields: list[tuple[str, str]] = []
    for part in text.split(",") if text.strip() else []:
        found = _FIELD.fullmatch(part.strip())
        if not found:
            raise UsageError(f"--event: {part.strip()!r} is no field; write name:type, with a type of {_TYPES}")
        if found[1] in _OWN_FIELDS or found[1] in {name for name, _ in fields}:
            raise UsageError(f"--event: there is a field {found[1]} already; each event has time, thread and function")
        fields.append((found[1], found[2]))
    return event_dtype(fields)


class _Events:
    """What is printed of one run."""

    def __init__(self, output: Output, ops: Ops, program: str, options: dict[str, Any]) -> None:
        from shadowgraph.trace.ticks import read_ticks, ticks_per_second

        self._output, self._ops, self._options = output, ops, options
        self._program = program
        self._functions: dict[int, Function] = {}
        self._rate = ticks_per_second
        self._count = 0
        self._told = False
        self._ticks, self._began = read_ticks(), time.monotonic()

    def write(self, batch: npt.NDArray[np.void]) -> None:
        """The lines of some events, at once."""
        from shadowgraph.view.events import event_line, event_objects
        from shadowgraph.view.live import Function, write_json

        if not self._told and not self._count:
            self._ticks = min(self._ticks, int(batch["time"].min()))  # some came before we were ready for them
        rate = self._rate()
        for number in self._ops.functions_by_number.keys() - self._functions.keys():  # some come with what is loaded
            label = self._ops.functions_by_number[number]
            self._functions[number] = Function(label, self._program, self._options["raw_names"])
        for function, content in event_objects(batch, lambda ticks: (ticks - self._ticks) / rate, self._functions):
            if self._options["as_json"]:
                write_json(self._output, content)
            else:
                self._output.line(event_line(function, content))
        self._count += len(batch)
        self._output.flush()

    def tell_fault(self) -> bool:
        """Say at once, and once, that handlers have been switched off; True."""
        if self._ops.fault and not self._told:
            click.echo(f"shadowgraph: the handlers were switched off because of a fault: {self._ops.fault}", err=True)
            self._told = True
        return True

    def end(self, session: Session) -> None:
        """How it went: as the last JSON object, or on stderr."""
        from shadowgraph.view.live import write_json
        from shadowgraph.view.units import count_of

        ops = self._ops
        seconds = time.monotonic() - self._began
        remarks = session.remarks()
        if ops.dropped:
            remarks.append(f"{count_of(ops.dropped, 'event')} came too fast and found no room")
        if ops.remark:
            remarks.append(ops.remark)
        self.tell_fault()
        losses = {"missed": ops.missed, "dropped": ops.dropped, "filtered": ops.filtered}
        if self._options["as_json"]:
            head = {"seconds": round(seconds, 6), "events": self._count, **losses, "fault": ops.fault or None}
            write_json(self._output, {**head, "end": session.ending, "problems": remarks})
        else:
            said = f"{count_of(self._count, 'event')} in {seconds:.1f} s"
            said += f": {session.idle}" if not self._count and session.idle else ""
            said += f"; {count_of(ops.filtered, 'call')} left out by --when" if self._options["when"] else ""
            click.echo(f"shadowgraph: {said}", err=True)
        self._output.flush()
        for remark in remarks:
            click.echo(f"shadowgraph: {remark}", err=True)
