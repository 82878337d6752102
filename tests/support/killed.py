"""Recordings in which somebody is killed with SIGKILL at a chosen moment, and what became of all who took part.

Moments are counted in what the recorder does: requests to the kernel about the program, reads and writes of its memory,
and what it writes to its spool. The same moment is the same stage of a recording in every run and on every machine.

    python -m tests.support.killed recorder|program FOLDER MOMENT... -- PROGRAM ARGUMENTS...

prints one line of JSON for each moment (see :class:`Killed`); moments count from the fork of the program, and 0 kills
nobody. The n-th trace is FOLDER/n.sgt.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["STAGES", "Killed", "kill_at"]

# What is done at a moment: the program, or one that it has executed, is being entered.
STAGES = ("", "entering", "starting")

_PR_SET_CHILD_SUBREAPER = 36

_ENTERING, _STARTING = 1, 2
_COUNTS = struct.Struct("<5q")  # moments; when the program was let go, entering was first and last seen; the stage


@dataclass(frozen=True)
class Killed:
    """One recording. Statuses are as a shell sees them; ``begun`` and ``moments`` count moments.

    ``begun`` is the one at which the program was let go, 0 if it never was; ``entering`` the first and the last one at
    which a program was entered that another one had executed. ``stage`` is what the last moment found (STAGES).
    ``others`` are the statuses of the recorder's orphans: the program, if it outlived the recorder, and the recorder's
    own helper.
    """

    trace: str
    output: str
    recorder: int
    others: list[int]
    begun: int
    moments: int
    entering: list[int]
    stage: str


def kill_at(whom: str, folder: Path, moments: Sequence[int], program: Sequence[str]) -> list[Killed]:
    """Record a program again and again, each time with a kill at another moment."""
    from tests.support.manners import usual_environment

    folder.mkdir(exist_ok=True)
    root = Path(__file__).resolve().parents[2]
    environment = usual_environment() | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = [sys.executable, "-m", "tests.support.killed", whom, str(folder), *map(str, moments), "--", *program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr
    return [Killed(**json.loads(line)) for line in done.stdout.splitlines()]


class _Moments:
    """Counts, in memory that outlives whoever is killed."""

    def __init__(self, whom: str, moment: int) -> None:
        self._whom, self._moment = whom, moment
        self._program = 0
        self._stage = 0
        self._shared = mmap.mmap(-1, _COUNTS.size)

    def counts(self) -> tuple[int, int, int, int, int]:
        """See _COUNTS."""
        moments, begun, first, last, stage = _COUNTS.unpack(self._shared[:])
        return moments, begun, first, last, stage

    def pass_one(self) -> None:
        """The next moment has come."""
        moments, begun, first, last, _ = self.counts()
        if self._stage == _ENTERING:
            first, last = first or moments + 1, moments + 1
        self._shared[:] = _COUNTS.pack(moments + 1, begun, first, last, self._stage)
        if moments + 1 == self._moment:
            victim = os.getpid() if self._whom == "recorder" else self._program
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass  # the program has ended before

    def watch(self) -> None:
        """Count what the recorder in this process does."""
        from shadowgraph.ops.recording import Recording
        from shadowgraph.target import launch, memory, ptrace
        from shadowgraph.trace.folder import NewTrace
        from shadowgraph.trace.spool_writer import SpoolWriter

        for owner, name in (
            (ptrace, "_request"),
            (memory.Memory, "read"),
            (memory.Memory, "write"),
            (SpoolWriter, "_write"),
        ):
            self._count_calls_of(owner, name)
        start, keep, enter = launch.launch, NewTrace.keep, Recording._enter

        def started(*arguments: Any) -> int:
            self._program, self._stage = start(*arguments), _STARTING
            return self._program

        def kept(trace: NewTrace) -> None:
            moments, _, *rest = self.counts()
            self._shared[:] = _COUNTS.pack(moments, moments, *rest)
            keep(trace)

        def entered(recording: Recording, pid: int, former: Any) -> None:
            self._stage = self._stage or _ENTERING
            try:
                enter(recording, pid, former)
            finally:
                self._stage = 0

        launch.launch, NewTrace.keep = started, kept  # type: ignore[method-assign,assignment]
        Recording._enter = entered  # type: ignore[method-assign]

    def _count_calls_of(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            if self._program:
                self.pass_one()
            return original(*arguments)

        setattr(owner, name, counted)


def _record(moments: _Moments, trace: Path, program: list[str]) -> None:
    """In a process of its own: be the recorder."""
    from shadowgraph.cli.main import main

    moments.watch()
    main(["record", "-q", "-o", str(trace), "--", *program])


def _run_one(whom: str, moment: int, trace: Path, program: list[str]) -> Killed:
    """One recording; everybody whom it leaves behind is ours to wait for."""
    moments = _Moments(whom, moment)
    read, write = os.pipe()
    recorder = os.fork()
    if recorder == 0:
        os.dup2(write, 1)
        os.close(read)
        os.close(write)
        status = 1
        try:
            _record(moments, trace, program)
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            os._exit(status)
    os.close(write)
    own = _shell_status(os.waitpid(recorder, 0)[1])  # at once: a program asks whether its recorder still is a process
    with open(read, errors="replace") as file:
        output = file.read()
    others = []
    while True:
        try:
            others.append(_shell_status(os.wait()[1]))
        except ChildProcessError:
            break
    last, begun, *entering, stage = moments.counts()
    return Killed(str(trace), output, own, others, begun, last, entering, STAGES[stage])


def _shell_status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _main() -> None:
    whom, folder, *rest = sys.argv[1:]
    at = rest.index("--")
    import shadowgraph.ops.recording  # once, not in each of the forks
    import shadowgraph.trace.folder
    import shadowgraph.trace.spool_writer  # noqa: F401

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number, moment in enumerate(rest[:at]):
        killed = _run_one(whom, int(moment), Path(folder) / f"{number}.sgt", rest[at + 1 :])
        print(json.dumps(asdict(killed)), flush=True)


if __name__ == "__main__":
    _main()
