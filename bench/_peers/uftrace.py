"""uftrace: of a program built for it with -pg, and of one that is not, patched as it starts (-P)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from _calls import Figures, Load, run
from _programs import MCOUNT, PLAIN, Variant, build_calls

from _peers.peer import SHAPES, Measured, folder_size, needs

__all__ = ["measure_built", "measure_patched"]


def measure_built(folder: Path, rounds: int, calls: int) -> Measured:
    """A program whose traced functions were compiled with -pg."""
    return _measure(folder, rounds, calls, MCOUNT)


def measure_patched(folder: Path, rounds: int, calls: int) -> Measured:
    """The very program that Shadowgraph records."""
    return _measure(folder, rounds, calls, PLAIN, "-P", "^traced_")


def _measure(folder: Path, rounds: int, calls: int, variant: Variant, *options: str) -> Measured:
    uftrace = needs("uftrace")
    program, figures, data = build_calls(variant), Figures(), folder / "uftrace.data"
    shutil.rmtree(data, ignore_errors=True)
    # Neither the kernel's task switches nor library calls: the traced functions alone.
    command = [uftrace, "record", "--no-event", "--no-libcall", "-d", str(data), *options, str(program)]
    made = run([*command, *Load(SHAPES, rounds, calls).arguments], figures)
    return Measured(figures, made, folder_size(data), _count(uftrace, data))


def _count(uftrace: str, data: Path) -> int:
    """Calls of traced functions in the trace."""
    command = [uftrace, "report", "--no-pager", "-d", str(data), "-f", "call"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split() for line in lines if " traced_" in line]
    return sum(int(row[0]) for row in rows)
