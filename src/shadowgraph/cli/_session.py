"""What `count`, `hist`, `probe` and `top` share: a process, attached to or started, for as long as it is wanted."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shadowgraph.cli._idleness import Idleness
from shadowgraph.cli._once import WHEN_TWICE, once
from shadowgraph.cli._patterns import patterns_option
from shadowgraph.cli._pid import Pid, processes_named
from shadowgraph.errors import ShadowgraphError, UsageError

if TYPE_CHECKING:
    from shadowgraph.live import User

__all__ = [
    "OfCommand",
    "Session",
    "follow_option",
    "functions_option",
    "output_option",
    "pid_argument",
    "say_which",
    "target_arguments",
    "when_option",
]

_KEYS = (signal.SIGINT, signal.SIGQUIT)
_LOOK_SECONDS = 0.05

_User = TypeVar("_User", bound="User")


def when_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --when, a condition that has been checked."""
    option = once("--when", WHEN_TWICE, metavar="PREDICATE", help="Only calls for which this holds: 'arg(0) == 1'.")

    @functools.wraps(command)
    def checked(when: str | None, **options: Any) -> Any:
        if when is not None:
            from shadowgraph.ops.predicates import check_predicate

            check_predicate(when, "--when")
        return command(when=when, **options)

    wrapped: Callable[..., Any] = option(checked)
    return wrapped


def functions_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add -f."""
    return patterns_option("These functions: a glob, re:…, or module!pattern.", "functions")(command)


def follow_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --follow."""
    return click.option(
        "--follow/--no-follow", default=True, help="Go along into programs that the program executes (the default)."
    )(command)


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add -o."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write to this file: standard output is the program's alone then.",
    )(command)


def target_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add PID or COMMAND, and --pid."""
    words = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="PID|COMMAND…")
    pid = click.option("-p", "--pid", type=Pid(), help="The process, if not named as the first argument.")
    return pid(words(command))


def say_which(doing: str, words: Sequence[str]) -> UsageError:
    """The mistake of naming no function, or of naming it behind the command, where options are the command's own."""
    said = f"say which functions to {doing}: -f PATTERN (-f '*' for all of the executable)"
    if any(word in ("-f", "--function") for word in words):
        said += f"; the -f behind {words[0]} is an option of {words[0]}, write ours before it"
    return UsageError(said)


def pid_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument PID, or --pid, which is the same."""

    @click.argument("named", required=False, type=Pid(), metavar="PID")
    @click.option("-p", "--pid", type=Pid(), help="The process, if not named as the argument.")
    @functools.wraps(command)
    def wrapped(named: int | None, pid: int | None, **options: Any) -> Any:
        if named is not None and pid is not None:
            raise UsageError("name the process once: as the argument PID or with --pid")
        if named is None and pid is None:
            raise UsageError("name a process by its pid, as the argument PID or with --pid")
        return command(named if pid is None else pid, **options)

    return wrapped


class OfCommand(click.Command):
    """A command of ours that may be given another: what follows the name of a program is the program's, as after --."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the words apart that are not ours."""
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        values, _, _ = parser.parse_args(list(args))
        words = values.get("words")
        if not isinstance(words, tuple):  # there are none
            return super().parse_args(ctx, args)
        ours = args[: len(args) - len(words)]
        if words and not words[0].isdecimal() and ours[-1:] != ["--"]:
            args = [*ours, "--", *words]
        return super().parse_args(ctx, args)


class Session:
    """A process with users of ours, from their registration to the end of it, of the time, or of the user's patience.

    As a context it leaves the process as it was. ``ending`` says afterwards what ended it: "exit" of the process,
    "time", "signal", or "detached" if somebody else has taken all our users off.
    """

    def __init__(
        self, words: Sequence[str], pid: int | None, duration: float | None = None, *, follow: bool = True
    ) -> None:
        self._command, self._pid = _target_of(words, pid)
        self._follow = follow
        self._duration = duration
        self._until: float | None = None
        self._interrupts = 0
        self._stop = False
        self._has_left = False
        self._saved: dict[int, Any] = {}
        self._users: list[User] = []
        self._idleness: Idleness | None = None
        self._idle: str | None = None
        self.ending = ""
        self.status = 0

    def __enter__(self) -> Session:
        from shadowgraph.cli._numpy import load_numpy
        from shadowgraph.cli._standard_files import occupy_standard_files
        from shadowgraph.target.limits import raise_own_limits

        occupy_standard_files()
        raise_own_limits()
        load_numpy()
        from shadowgraph import live
        from shadowgraph.target.launch import EndedBeforeEntry

        for number in (*_KEYS, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._saved[number] = signal.signal(number, self._signalled)
        try:
            follow = self._follow
            if self._pid is None:
                self.target = live.launch(self._command, follow=follow)
            else:
                self.target = live.attach(self._pid, follow=follow)
            self.program = _program_of(self.target.pid)
        except EndedBeforeEntry as ended:  # its loader has said why
            self._restore()
            code = os.waitstatus_to_exitcode(ended.status)
            raise SystemExit(code if code >= 0 else 128 - code) from None
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is not None and self._pid is None and not self._users:
                self._abandon()
            else:
                self.target.close()
        finally:
            self._restore()
        if self.ending == "exit" and self._pid is None:
            from shadowgraph.view.terminal import NobodyListens

            if kind is not None and issubclass(kind, NobodyListens):
                raise SystemExit(self.status)  # as ever, whoever reads along

    def register(self, user: _User) -> _User:
        """Put a user on the process."""
        self.target.register(user)
        self._users.append(user)
        return user

    def start(self) -> None:
        """All users are there: say what is waited for, and let a program that was launched begin, and the time."""
        for note in self.target.awaited:
            click.echo(f"shadowgraph: {note}", err=True)
        self.target.resume()
        if self._pid is not None:
            self._idleness = Idleness(self._pid)
        if self._duration is not None:
            self._until = time.monotonic() + self._duration

    def wait(self, seconds: float | None = None) -> bool:
        """Wait so long, or for ever. True while the session goes on."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._is_over():
            now = time.monotonic()
            ends = [end - now for end in (deadline, self._until) if end is not None]
            status = self.target.wait(max(min([_LOOK_SECONDS, *ends]), 0))
            if status is not None:
                self.ending, self.status = "exit", status
            elif deadline is not None and time.monotonic() >= deadline:
                return not self._is_over()
        return False

    def leave(self) -> None:
        """Take our users off. A program that was launched runs on, and Ctrl-C is its own from now on."""
        self._idle = self.idle
        self._has_left = True
        self.target.close()

    def see_out(self) -> None:
        """Wait for a program that was launched and has outlived the session, unless we are told to leave it.

        It is in our place on the terminal: if we ended first, the shell would take the terminal from it.
        """
        self._has_left = True
        while self._pid is None and self.ending in ("time", "detached") and not self._stop:
            status = self.target.wait(_LOOK_SECONDS)
            if status is not None:
                self.status = status
                return

    def _is_over(self) -> bool:
        if not self.ending:
            if self._stop:
                self.ending = "signal"
            elif self._until is not None and time.monotonic() >= self._until:
                self.ending = "time"
            elif self._users and not any(user.is_registered for user in self._users):
                self.ending = "detached"
            if self.ending:
                self._idle = self.idle
        return bool(self.ending)

    def remarks(self) -> list[str]:
        """What there is to say beside the results, in sentences."""
        said = list(self.target.notes)
        missed = sum(user.missed for user in self._users)
        if missed:
            from shadowgraph.view.units import count_of

            said.append(
                f"{count_of(missed, 'call')} could not be served, missing from these numbers{self._why_missed(missed)}"
            )
        if self.ending == "detached":
            said.append("this user was taken off by somebody else (shadowgraph detach)")
        if self._pid is None and self.ending not in ("", "exit"):
            said.append(f"the program runs on (process {self.target.pid})")
        return said

    def _why_missed(self, missed: int) -> str:
        """The reason, where it is known; the end of a sentence."""
        in_vfork = sum(user.missed_in_vfork for user in self._users)
        if not in_vfork:
            return ""
        which = "" if in_vfork == missed else f"{in_vfork:,} of them "
        return f": {which}made by children of vfork() whose parents had made no traced call before"

    @cached_property
    def library(self) -> str:
        """The library that most of the program's code may be in; "" if it has none."""
        try:
            return self.target.largest_library
        except OSError:
            return ""  # the process has ended

    @property
    def idle(self) -> str:
        """What there is to say of a process that has hardly run until now, or until the end of the session; or ""."""
        if self._idle is not None or self._idleness is None:
            return self._idle or ""
        return self._idleness.sentence()

    def where_else(self, functions: Sequence[str]) -> str:
        """Where else to look if all of the executable was meant, and nothing of it is called; the end of a sentence."""
        if "*" not in functions or not self.library:
            return ""
        return f"; most code of its libraries is in {self.library} (-f {shlex.quote(self.library + '!*')})"

    @property
    def filtered(self) -> int:
        """Calls that conditions have left out."""
        return sum(user.filtered for user in self._users)

    def say_remarks(self) -> None:
        """The same on stderr, and what conditions have left out."""
        if self.filtered:
            from shadowgraph.view.units import count_of

            click.echo(f"shadowgraph: {count_of(self.filtered, 'call')} left out by --when", err=True)
        for remark in self.remarks():
            click.echo(f"shadowgraph: {remark}", err=True)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C and Ctrl-\\ reach a program that was launched by themselves: the first one is its business."""
        self._interrupts += number in _KEYS
        if number not in _KEYS or self._pid is not None or (self._interrupts > 1 and not self._has_left):
            self._stop = True

    def _restore(self) -> None:
        for number, handler in self._saved.items():
            signal.signal(number, handler)
        self._saved.clear()

    def _abandon(self) -> None:
        """Nothing of the program has run yet: it is ended rather than left unwatched."""
        try:
            os.kill(self.target.pid, signal.SIGKILL)
            os.waitpid(self.target.pid, 0)
            self.target.close()
        except (ShadowgraphError, OSError):
            pass  # it is gone


def _target_of(words: Sequence[str], pid: int | None) -> tuple[list[str], int | None]:
    """The command to be run, or the process to be attached to."""
    if pid is not None:
        if words:
            raise UsageError("--pid names a process that runs already; no program can be named with it")
        return [], pid
    if not words:
        raise UsageError("name a process by its pid, or a program to run")
    if len(words) == 1 and words[0].isdecimal():
        return [], int(words[0])
    if words[0].isdecimal() and shutil.which(words[0]) is None:
        raise UsageError(
            f"process {words[0]} is followed by {shlex.join(words[1:])!r}: name one process, "
            "and write the values of options without spaces (--for 100ms)"
        )
    there = processes_named(words[0]) if len(words) == 1 and shutil.which(words[0]) is None else ""
    if there:
        raise UsageError(f"{words[0]} is no program in PATH; to look at a process, give its number: {there}")
    return list(words), None


def _program_of(pid: int) -> str:
    """The name of the module whose functions need no module beside their names."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).removesuffix(" (deleted)")
    except OSError:
        return ""
