"""Where the nanoseconds of a traced call go: the paths of the agent, and paths with parts of them, against the floor.

    python bench/path_parts.py [--runs 4] [--rounds 40] [--calls 100000]

Each is built into one small program (programs/parts.c), with the same thunks and return sites, one thread and one
buffer that stays in the cache. The bare one does what no path can leave out that hooks functions of a finished program
and touches only registers that it gives back: it is not fit for real programs. docs/costs.md draws the conclusions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from _lines import say
from _programs import build_parts

PARTS = {
    "bare": ("bare: a frame, the address to return to, two time stamps, a record", ()),
    "flags": ("bare, and flags kept", ("FLAGS",)),
    "taking": ("bare, and frames that signal handlers respect", ("TAKING",)),
    "both": ("bare, and both", ("FLAGS", "TAKING")),
    "agent": ("the agent's paths", ("AGENT",)),
}
SHAPES = ("leaf", "recursion")


def measure(program: Path, options: argparse.Namespace) -> dict[str, float]:
    """Nanoseconds a call, the best of all runs, by shape and by the floor of that shape."""
    best: dict[str, float] = {}
    for _ in range(options.runs):
        command = [str(program), str(options.rounds), str(options.calls)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{program.name}: status {done.returncode}: {done.stderr.strip()}")
        for name, ns in json.loads(done.stdout).items():
            best[name] = min(ns, best.get(name, ns))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=100_000)
    options = parser.parse_args()
    figures = {name: measure(build_parts(name, *defines), options) for name, (_, defines) in PARTS.items()}
    for shape in SHAPES:
        floor = min(best[f"{shape}_floor"] for best in figures.values())
        for name, (what, _) in PARTS.items():
            ns = figures[name][shape]
            say(f"{what}: {shape}", {"ns": ns, "ratio": ns / floor, "to": "floor", "floor_ns": floor})


if __name__ == "__main__":
    main()
