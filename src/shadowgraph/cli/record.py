"""`shadowgraph record PROGRAM [ARGUMENTS…]`."""

from __future__ import annotations

import os
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shadowgraph.cli._once import WHEN_TWICE, once
from shadowgraph.cli._patterns import patterns_option
from shadowgraph.cli._pid import Pid
from shadowgraph.cli._time import Nanoseconds, Time
from shadowgraph.errors import ShadowgraphError, UsageError

if TYPE_CHECKING:
    from shadowgraph.ops.known_modules import KnownModules
    from shadowgraph.ops.result import Result
    from shadowgraph.ops.selection import Rule
    from shadowgraph.stack.safe_place import SafePlace
    from shadowgraph.trace.finisher import Finisher

__all__ = ["command"]

_LARGEST_BUFFER = 64 << 30
_USUAL_SIZE = 4 << 30
_DEEPEST = 0xFFFF  # what a record can say (native/include/shadowgraph/records.h)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# All of shadowgraph.ops.values.TYPE_NAMES, which takes too long to import for a help text; a test compares the two.
_VALUE_TYPES = (
    "Types are i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 bool char str (a C string) ptr, and for the same things int8_t "
    "int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t short int long unsigned uint ulong size_t ssize_t "
    "off_t intptr_t uintptr_t float double _Bool, char* string cstr (str), pointer void* and whatever else ends in * "
    "(ptr). _ leaves a value out."
)


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", value.strip().lower())
        if not match:
            self.fail(f"{value!r} is not a size; write 64M or 2G", param, ctx)
        return int(float(match[1]) * _UNITS[match[2]])


class _OrderedRules(click.Command):
    """Keeps -f, -n and -m in the order they were given: the last matching one wins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        parser = self.make_parser(ctx)
        _, _, order = parser.parse_args(args=list(args))
        ctx.obj = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


@click.command(
    cls=_OrderedRules,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    short_help="Run a program and record its function calls.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Trace folder (default: PROGRAM.sgt).")
@click.option("--force", is_flag=True, help="Replace the trace folder if it exists.")
@patterns_option("Trace these functions: a glob, re:…, or module!pattern.", "functions")
@click.option(
    "-n", "--not", "excluded", multiple=True, metavar="PATTERN", help="Do not trace these. The last matching rule wins."
)
@click.option(
    "-m", "--module", "modules", multiple=True, metavar="PATTERN", help="Trace all functions of these modules."
)
@click.option("--all", "everything", is_flag=True, help="Trace every function of every module.")
@click.option(
    "--libcalls",
    type=click.Choice(["direct", "all", "none"]),
    default="direct",
    show_default=True,
    help="Library functions that the program imports: when it calls them itself, whoever calls them, or not at all.",
)
@click.option(
    "--args",
    "values",
    multiple=True,
    metavar="SPEC",
    help=f"Capture arguments and results: 'open(str path, i32 flags) -> i32'. {_VALUE_TYPES}",
)
@click.option("--auto-args", is_flag=True, help="Capture what debug information says of arguments and results.")
@click.option("--depth", type=click.IntRange(1, _DEEPEST), help="Trace at most this many nested calls.")
@click.option("--min-time", type=Nanoseconds(), default=0, help="Leave out calls shorter than this (10us).")
@once(
    "--when",
    WHEN_TWICE,
    metavar="PREDICATE",
    help="Record calls for which this holds: 'duration > 1ms and arg(0) == 1'.",
)
@click.option("--follow/--no-follow", default=True, help="Follow into programs that the program executes.")
@click.option(
    "--on-full",
    type=click.Choice(["block", "drop", "overwrite"]),
    default="block",
    show_default=True,
    help="When the buffer is full: wait, drop new calls, or keep the newest.",
)
@click.option("--buffer", type=_Size(), default="64M", show_default=True, help="Memory for records in transit.")
@click.option(
    "--max-size",
    type=_Size(),
    help="Stop recording when the trace has this size (default: 4G, or a tenth of the free space).",
)
@click.option("-p", "--pid", type=Pid(), help="Record a process that runs already, and leave it running.")
@click.option("--for", "duration", type=Time(), metavar="TIME", help="Stop recording after this time (10s).")
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
@click.argument("program", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int:
    """Run PROGRAM with its ARGUMENTS and record every call of its functions; or attach to a process with --pid.

    The program behaves as if it were alone; shadowgraph ends with its exit status. When the time given with --for is
    over, the recording ends and the program runs on as it was. With --pid, Ctrl-C does the same.
    """
    return _Record(context.obj, options).run()


class _Record:
    """One run of the command."""

    def __init__(self, order: list[str], options: dict[str, Any]) -> None:
        self.options = options
        self.rules = _ordered_rules(order, options)

    def run(self) -> int:
        """Do everything; the exit status."""
        from shadowgraph.cli._numpy import load_numpy
        from shadowgraph.cli._standard_files import occupy_standard_files
        from shadowgraph.target.limits import raise_own_limits
        from shadowgraph.trace.finisher import Finisher

        occupy_standard_files()
        raise_own_limits()
        load_numpy()  # once, for the finisher too
        finisher = Finisher(_progress())
        try:
            return self._record(finisher)
        finally:
            finisher.cancel()

    def _record(self, finisher: Finisher) -> int:
        from shadowgraph.agent import layout
        from shadowgraph.agent.inject import Settings
        from shadowgraph.cli._seeing_out import see_out
        from shadowgraph.cli._signals import PassedSignals
        from shadowgraph.ops.predicates import check_predicate
        from shadowgraph.ops.recording import Recording
        from shadowgraph.ops.selection import Selection
        from shadowgraph.ops.values import Capture, parse_rule
        from shadowgraph.target.launch import find_program
        from shadowgraph.target.vet import vet_program
        from shadowgraph.trace.folder import SPOOL, NewTrace
        from shadowgraph.trace.spool_writer import SpoolWriter

        options = self.options
        if options["when"] is not None:
            check_predicate(options["when"], "--when")
        pid = options["pid"]
        if pid is None:
            if options["program"] is None:
                raise UsageError("name a program to record, or a process with --pid")
            path = find_program(options["program"])
            vet_program(path)
            arguments, directory = [options["program"], *options["arguments"]], _folder_here()
        else:
            if options["program"] is not None:
                raise UsageError("--pid names a process that runs already; no program can be named with it")
            path, arguments, directory = _running_program(pid)
        output = options["output"] or Path(os.path.basename(path) + ".sgt")
        segment = 128 << 10
        if not 4 * segment <= options["buffer"] <= _LARGEST_BUFFER:
            raise UsageError("--buffer must be at least 512K and at most 64G")
        policy = {"block": layout.POLICY_BLOCK, "drop": layout.POLICY_DROP, "overwrite": layout.POLICY_OVERWRITE}
        settings = Settings(
            policy=policy[options["on_full"]],
            segment_size=segment,
            segments=options["buffer"] // segment,
            minimal_ticks=_ticks(options["min_time"]),
            depth_limit=options["depth"] or 0,
        )
        capture = Capture([parse_rule(text) for text in options["values"]], automatic=options["auto_args"])
        selection = Selection(
            self.rules, everything=options["everything"], libcalls=options["libcalls"], when=options["when"]
        )
        metadata = {
            "program": os.path.realpath(path),
            "executable": _executable(path),
            "arguments": arguments,
            "directory": directory,
            "on_full": options["on_full"],
        }
        with NewTrace(output, metadata, force=options["force"]) as trace:
            spool = SpoolWriter(trace.folder / SPOOL, max_size=self._largest_size(trace.folder))
            what = (spool, selection, settings)
            recording = Recording(*what, capture=capture, follow=options["follow"], judge_of=_judge_of)
            with PassedSignals(recording, first_is_ours=pid is not None) as signals:
                try:
                    if pid is None:
                        result = recording.run(path, arguments, started=trace.keep, seconds=self.options["duration"])
                    else:
                        result = recording.run_on(pid, self.options["duration"], trace.keep)
                finally:
                    spool.close()
                to_be_seen_out = pid is None and result.runs_on and not signals.told_to_leave
                if to_be_seen_out:
                    signals.leave_keys_to_the_program()
                self._finish(finisher, trace.folder, result)
                status = result.status
                if to_be_seen_out:
                    status = see_out(recording.main_pid, lambda: signals.told_to_leave) or 0
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _largest_size(self, folder: Path) -> int:
        """--max-size, or what cannot fill a disk by surprise."""
        chosen: int | None = self.options["max_size"]
        if chosen is not None:
            return chosen
        disk = os.statvfs(folder)
        return min(_USUAL_SIZE, max(disk.f_bavail * disk.f_frsize // 10, 64 << 20))

    def _finish(self, finisher: Finisher, folder: Path, result: Result) -> None:
        """Write the tables and say how it went. If that fails, the program has ended as it would have, and so do we."""
        from shadowgraph.cli._summary import summary_lines

        try:
            lines = summary_lines(folder, result, finisher.finish(folder))
        except ShadowgraphError as error:
            click.echo(f"shadowgraph: {error}", err=True)
            return
        for line in [] if self.options["quiet"] else lines:
            click.echo(f"shadowgraph: {line}", err=True)


def _executable(path: str) -> str:
    """The file whose functions are the program's own: a script's are those of its interpreter."""
    from shadowgraph.cli._program_file import find_program_file

    try:
        return os.path.realpath(find_program_file(path)[0])
    except UsageError:
        return os.path.realpath(path)  # the kernel will say what is wrong with it


def _running_program(pid: int) -> tuple[str, list[str], str]:
    """The program, the arguments and the folder of a process that can be attached to."""
    from shadowgraph.ops.processes import vet_alone

    vet_alone(pid)
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        arguments = [os.fsdecode(word) for word in file.read().rstrip(b"\0").split(b"\0")]
    return os.readlink(f"/proc/{pid}/exe"), arguments, os.readlink(f"/proc/{pid}/cwd")


def _judge_of(pid: int, known_modules: KnownModules) -> closing[SafePlace]:
    from shadowgraph.stack.safe_place import SafePlace

    return closing(SafePlace(pid, known_modules))


def _folder_here() -> str:
    """The current folder, were it even removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.readlink("/proc/self/cwd")


def _ordered_rules(order: list[str], options: dict[str, Any]) -> list[Rule]:
    from shadowgraph.ops.selection import function_rule, module_rule

    values = {name: iter(options[name]) for name in ("functions", "excluded", "modules")}
    rules = []
    for name in order:
        if name not in values:
            continue
        text = next(values[name], None)
        if text is None:
            continue
        rules.append(module_rule(text) if name == "modules" else function_rule(text, include=name == "functions"))
    return rules


def _ticks(nanoseconds: int) -> int:
    """Nanoseconds as ticks, by measuring for a few milliseconds."""
    if not nanoseconds:
        return 0
    import time

    from shadowgraph.trace.ticks import clock_pair

    first = clock_pair(0)
    time.sleep(0.02)
    last = clock_pair(0)
    ticks = nanoseconds * (last["tick"] - first["tick"]) // (last["monotonic_ns"] - first["monotonic_ns"])
    return min(ticks, (1 << 63) - 1)


def _progress() -> Any:
    """A progress line on a terminal, nothing elsewhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // max(total, 1)
        if percent != shown and total > 1 << 25:
            shown = percent
            end = "\r" if percent < 100 else "\r\033[K"
            click.echo(f"shadowgraph: writing the trace … {percent} %", err=True, nl=False)
            click.echo(end, err=True, nl=False)

    return show
