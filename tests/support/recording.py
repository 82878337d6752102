"""Running a program with and without the recorder, and what came out of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.build import PROGRAMS, build, compile_files, scratch_folder
from tests.support.graphs import Graph
from tests.support.traces import Trace, names_by_address, read_trace

__all__ = [
    "Outcome",
    "Recording",
    "built",
    "functions_of",
    "plain_run",
    "record",
    "recorder_command",
    "refused_names",
    "usual",
]

SOURCE = Path(__file__).resolve().parent.parent.parent / "src"


@dataclass(frozen=True)
class Outcome:
    """What a program wrote and how it ended: status as a shell sees it (128 + signal)."""

    output: bytes
    errors: bytes
    status: int

    @property
    def lines(self) -> list[str]:
        """Standard output in lines."""
        return self.output.decode(errors="replace").splitlines()


@dataclass(frozen=True)
class Recording:
    """The outcome of a recorded run, and its trace folder."""

    outcome: Outcome
    folder: Path
    program: Path

    def trace(self) -> Trace:
        """The trace, read."""
        return read_trace(self.folder, self.program)

    def report(self) -> dict[str, object]:
        """What ``shadowgraph report --json`` says."""
        command = [*_shadowgraph(), "report", "--json", str(self.folder)]
        content: dict[str, object] = json.loads(
            subprocess.run(command, env=environment(), capture_output=True, check=True).stdout
        )
        return content


def environment() -> dict[str, str]:
    """The environment of all runs, with and without the recorder: deterministic, and the recorder importable."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(scratch_folder()),
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(SOURCE),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _shadowgraph() -> list[str]:
    return [sys.executable, "-m", "shadowgraph.cli.main"]


def _run(
    command: list[str], stdin: bytes, folder: Path | None, timeout: float, variables: dict[str, str] | None = None
) -> Outcome:
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        timeout=timeout,
        env=environment() | (variables or {}),
        cwd=folder or scratch_folder(),
    )
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return Outcome(done.stdout, done.stderr, status)


def plain_run(command: list[str], *, stdin: bytes = b"", folder: Path | None = None, timeout: float = 60) -> Outcome:
    """Run a program without the recorder."""
    return _run(command, stdin, folder, timeout)


def recorder_command(program: list[str], trace: Path, options: tuple[str, ...] = ()) -> list[str]:
    """The command that records ``program`` (with its arguments) quietly."""
    return [*_shadowgraph(), "record", "-q", "-o", str(trace), *options, "--", *program]


def record(
    command: list[str],
    *options: str,
    stdin: bytes = b"",
    folder: Path | None = None,
    timeout: float = 120,
    program: Path | None = None,
    variables: dict[str, str] | None = None,
) -> Recording:
    """Run a program under the recorder.

    ``program`` is the file whose functions are its own (default: the command), ``variables`` go into its environment.
    """
    trace = Path(tempfile.mkdtemp(prefix="trace-", dir=scratch_folder())) / "run.sgt"
    outcome = _run(recorder_command(command, trace, options), stdin, folder, timeout, variables)
    return Recording(outcome, trace, (program or Path(shutil.which(command[0]) or command[0])).resolve())


def functions_of(program: Path) -> list[dict[str, object]]:
    """What ``shadowgraph functions --json`` says about each function of a program."""
    done = subprocess.run(
        [*_shadowgraph(), "functions", "--json", str(program)], env=environment(), capture_output=True, check=True
    )
    rows: list[dict[str, object]] = json.loads(done.stdout)["functions"]
    return rows


def refused_names(program: Path) -> dict[str, str]:
    """The functions that cannot be hooked, with the reason given for each; by their real names where it is stripped."""
    real = names_by_address(program)
    rows = [row for row in functions_of(program) if not row["hookable"]]
    return {real.get(int(str(row["address"])), str(row["function"])): str(row["reason"]) for row in rows}


@cache
def _library(graph_path: Path) -> Path:
    source = graph_path.with_suffix("").with_suffix(".shared.c")
    library = scratch_folder() / f"{graph_path.stem}.shared.so"
    compile_files("gcc", [source], library, ("-shared", "-fPIC", "-O2"))
    return library


def built(graph: Graph, variant: str) -> Path:
    """The program of a graph in one build."""
    flags = tuple(graph.build)
    if graph.macro_of_library:
        flags += (f'-D{graph.macro_of_library}="{_library(graph.path)}"',)
    return build(graph.source, variant, flags)


def usual() -> list[Path]:
    """All graphs, in the order of their names."""
    return sorted(PROGRAMS.glob("*.graph"))
