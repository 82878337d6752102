"""Runs of the program `calls`, alone or under a tracer, and what they measured."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _programs import ROOT

__all__ = ["SHADOWGRAPH", "TRACED", "Figures", "Load", "Recorded", "record", "run"]

SHADOWGRAPH = [sys.executable, "-c", "from shadowgraph.cli.main import main; main()"]
TRACED = ["--function", "traced_*", "--function", "library_*"]


@dataclass(frozen=True)
class Load:
    """The arguments of `calls`."""

    shapes: Sequence[str]
    rounds: int
    calls: int
    threads: int = 1

    @property
    def arguments(self) -> list[str]:
        """As words of a command."""
        return [str(self.rounds), str(self.calls), str(self.threads), *self.shapes]


@dataclass
class Figures:
    """Nanoseconds a call by shape and twin: for each thread, a figure a round. Runs may be added to each other."""

    threads: dict[tuple[str, str], list[list[float]]] = field(default_factory=dict)
    made: int = 0

    def add(self, output: str) -> None:
        """Add what one run of `calls` printed."""
        for line in output.splitlines():
            if not line.startswith("{"):
                continue
            row: dict[str, Any] = json.loads(line)
            self.made += row.get("made", 0)
            if "shape" in row:
                known = self.threads.setdefault((row["shape"], row["twin"]), [[] for _ in row["ns"]])
                for rounds, new in zip(known, row["ns"], strict=True):
                    rounds.extend(new)

    def best(self, shape: str, twin: str) -> float:
        """The best round, of the thread where that is worst."""
        return max(min(rounds) for rounds in self.threads[shape, twin])

    def middle(self, shape: str, twin: str) -> float:
        """The median of all rounds: with what happens only every few rounds, such as a change of buffers."""
        return statistics.median(figure for rounds in self.threads[shape, twin] for figure in rounds)


@dataclass(frozen=True)
class Recorded:
    """What `shadowgraph record` says of a trace: its manifest, and how many calls must be accounted for in it."""

    manifest: dict[str, Any]
    made: int

    @property
    def accounted(self) -> int:
        """Calls that were recorded, or counted as not recorded."""
        return sum(int(self.manifest[name]) for name in ("calls", "missed", "dropped", "filtered"))


def run(command: Sequence[str], figures: Figures, **environment: str) -> int:
    """Run a command that ends in a run of `calls`, and add what it printed; the calls of traced functions it made."""
    before = figures.made
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    figures.add(done.stdout)
    return figures.made - before


def record(program: Path, load: Load, figures: Figures, trace: Path, *options: str) -> Recorded:
    """Record a run of `calls` with these options."""
    command = [*SHADOWGRAPH, "record", "--quiet", "--force", "--output", str(trace), *TRACED, *options]
    made = run([*command, str(program), *load.arguments], figures, PYTHONPATH=str(ROOT / "src"))
    return Recorded(json.loads((trace / "manifest.json").read_text()), made)
