"""Running the same command with and without the recorder, in an environment that a line of shell prepares."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.build import PROGRAMS, build, scratch_folder
from tests.support.recording import SOURCE

__all__ = ["Ended", "prepared", "program", "recorded", "recorder", "run", "usual_environment"]


@dataclass(frozen=True)
class Ended:
    """How a command ended: output, errors, and its status as a shell sees it."""

    output: str
    errors: str
    status: int

    @property
    def lines(self) -> list[str]:
        """Standard output in lines."""
        return self.output.splitlines()

    @property
    def sentence(self) -> str:
        """What the recorder said, if it was one line; else the test fails."""
        lines = [line for line in self.errors.splitlines() if line.strip()]
        assert len(lines) == 1, self.errors
        assert lines[0].startswith("shadowgraph: "), self.errors
        return lines[0].removeprefix("shadowgraph: ")


def program(name: str, variant: str = "o1", *flags: str) -> str:
    """One of tests/programs, built."""
    source = next(path for path in (PROGRAMS / f"{name}.c", PROGRAMS / f"{name}.cpp") if path.exists())
    return str(build(source, variant, flags))


def usual_environment() -> dict[str, str]:
    """What a run is given if nothing else is said: little, and the recorder can be imported."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SOURCE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
    }


def recorder(*options: str, trace: Path | None = None) -> list[str]:
    """The start of a command that records what follows, quietly and to a folder of its own."""
    folder = trace or Path(tempfile.mkdtemp(prefix="manners-", dir=scratch_folder())) / "run.sgt"
    return [sys.executable, "-m", "shadowgraph.cli.main", "record", "-q", "-o", str(folder), *options, "--"]


def prepared(setup: str, command: Sequence[str]) -> list[str]:
    """The command run by a shell that first does ``setup``; the shell stays its parent."""
    return ["sh", "-c", f'{setup}\n"$@"; exit $?', "sh", *command]


def run(
    command: Sequence[str],
    *,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    timeout: float = 60,
) -> Ended:
    """Run a command to its end."""
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        env=environment if environment is not None else usual_environment(),
        cwd=folder or scratch_folder(),
        timeout=timeout,
    )
    return Ended(done.stdout, done.stderr, done.returncode if done.returncode >= 0 else 128 - done.returncode)


def recorded(command: Sequence[str], *options: str, trace: Path | None = None, **more: object) -> Ended:
    """Run a command under the recorder; further arguments are those of :func:`run`."""
    return run([*recorder(*options, trace=trace), *command], **more)  # type: ignore[arg-type]
