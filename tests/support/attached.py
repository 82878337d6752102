"""Attaching to running programs and leaving them, from within a test, and what must be as before afterwards."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from shadowgraph.agent import layout
from shadowgraph.agent.inject import Settings
from shadowgraph.agent.rings import Rings
from shadowgraph.ops.attaching import prepare
from shadowgraph.ops.choices import EnteredProcess
from shadowgraph.ops.function_ids import FunctionIds
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.leaving import leave
from shadowgraph.ops.processes import runs
from shadowgraph.ops.recorder_slot import end_recorder, give_back_recorder_slot
from shadowgraph.ops.selection import LibraryCalls, Selection
from shadowgraph.ops.values import Capture
from shadowgraph.stack.safe_place import SafePlace
from shadowgraph.target.memory import Memory, read_mappings

__all__ = ["KNOWN_MODULES", "Running", "Seen", "attach", "attached", "recorded_calls"]

KNOWN_MODULES = KnownModules()
_SMALL = Settings(policy=layout.POLICY_DROP, segment_size=4096, segments=256)


class Running:
    """A program that has said `ready` (or ``ready``) and goes on. As a context manager, it does not outlive it."""

    def __init__(self, command: Sequence[str], ready: str | None = "ready") -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        if ready is not None:
            assert self.process.stdout is not None
            assert self.process.stdout.readline() == f"{ready}\n"

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for file in (self.process.stdin, self.process.stdout):
            if file is not None:
                file.close()

    def say(self, line: str) -> str:
        """Send it a line and return the one that it answers."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.line()

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self, line: str = "end", status: int = 0) -> list[str]:
        """Let it end with a last line; what it printed since."""
        output, _ = self.process.communicate(line + "\n", timeout=120)
        assert self.process.returncode == status, output
        return output.splitlines()


def _open_files(pid: int) -> dict[str, str]:
    """The files that a process has open; one that it closes while we look is not there."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found[name] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


@dataclass(frozen=True)
class Seen:
    """What a process shows of itself that attaching to it must not change."""

    code: dict[tuple[str, int], bytes]
    files: dict[str, str]
    tracer: str
    size: int
    resident: int

    @classmethod
    def of(cls, pid: int, program: str) -> Seen:
        """The state of a process: the code of its program and of the C library, its files, its memory in KiB."""
        memory = Memory(pid)
        code = {
            (m.path, m.start): memory.read(m.start, m.end - m.start)
            for m in read_mappings(pid)
            if "x" in m.permissions and (m.path == program or "/libc" in m.path or "/ld-" in m.path)
        }
        memory.close()
        files = _open_files(pid)
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        size, anonymous, shared = (int(lines[name].split()[0]) for name in ("VmSize", "RssAnon", "RssShmem"))
        return cls(code, files, lines["TracerPid"].strip(), size, anonymous + shared)


def attach(
    pid: int, selection: Selection | None = None, settings: Settings = _SMALL
) -> tuple[EnteredProcess, list[float]]:
    """Attach to a process; also for how long it stood still each time."""
    chosen = selection or Selection(libcalls=LibraryCalls.NONE)
    attachment = prepare(pid, chosen, Capture(), settings, KNOWN_MODULES, FunctionIds(), follow=True)
    judge = SafePlace(pid, KNOWN_MODULES)
    try:
        return attachment.carry_out(judge), attachment.stops
    finally:
        judge.close()
        attachment.close()


@contextmanager
def attached(pid: int, selection: Selection | None = None, settings: Settings = _SMALL) -> Iterator[EnteredProcess]:
    """Attach to a process, and leave it again."""
    process, _ = attach(pid, selection, settings)
    try:
        yield process
    finally:
        end_recorder(process.agent, process.slot)
        if runs(pid):
            leave(pid)
        give_back_recorder_slot(process.agent, process.slot)


def recorded_calls(process: EnteredProcess) -> int:
    """How many records a process has written, or dropped since its rings were full."""
    arena = process.agent.arena
    words = Rings(arena, process.slot).data.reshape(-1).view("u8").reshape(-1, 2)
    written = int(((words[:, 1] & 0xFFFFFF) != 0).sum())
    return written + int(arena.threads["dropped"].sum()) + int(arena.header["dropped"])
