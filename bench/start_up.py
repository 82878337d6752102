"""What `record` adds to a program that ends at once, and what hooking a large program takes.

    python bench/start_up.py [--runs 15]

The package is installed as users install it (a wheel, its modules compiled beforehand) into a folder of its own, and
the commands are measured in turns: the least time each takes, by the clock and of the processor (all processes). It has
a cache of its own, which knows each program from a recording before; one line is without.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from _lines import say, say_missing
from _programs import ROOT, build_thousand

# Large programs that run and end without calling much, best first: what is asked of them, and how they are found.
LARGE = (("node", "--version"), ("clang", "--version"), ("perl", "-v"))


@dataclass(frozen=True)
class Times:
    """Seconds by the clock, and of processor time."""

    elapsed: float
    processor: float

    def best(self, other: Times) -> Times:
        """The least of both."""
        return Times(min(self.elapsed, other.elapsed), min(self.processor, other.processor))


class Installed:
    """The package as it is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        command += ["--no-build-isolation", "--target", str(folder), str(ROOT)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"the package could not be installed: {done.stderr.strip()}")
        self.environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.environment["PYTHONPATH"] = str(folder)
        self.environment["XDG_CACHE_HOME"] = str(folder / "cache")
        self.environment.pop("SHADOWGRAPH_NO_CACHE", None)

    def record(self, trace: Path, program: Sequence[str]) -> list[str]:
        """The command that records a program."""
        command = str(self.folder / "bin" / "shadowgraph")
        return [sys.executable, command, "record", "--force", "--output", str(trace), *program]


def measure(command: Sequence[str], environment: dict[str, str]) -> Times:
    """Run a command once."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise RuntimeError(f"{' '.join(command)}: status {process.returncode}")
    return Times(elapsed, usage.ru_utime + usage.ru_stime)


def compare(installed: Installed, program: Sequence[str], trace: Path, runs: int) -> tuple[Times, Times, int]:
    """The least times of a program alone and recorded, in turns; and how many functions were hooked."""
    record = installed.record(trace, program)
    said = subprocess.run(record, env=installed.environment, capture_output=True, text=True).stderr
    alone = recorded = Times(1e9, 1e9)
    for _ in range(runs):
        alone = alone.best(measure(program, installed.environment))
        recorded = recorded.best(measure(record, installed.environment))
    return alone, recorded, hooked_in(said)


def hooked_in(summary: str) -> int:
    """The number of functions in record's summary: `… calls of 3 functions (1,002 hooked)`, or `of 3 functions`."""
    words = summary.replace("(", "").split()
    before = next((word for word in ("hooked)", "functions") if word in words), "")
    return int(words[words.index(before) - 1].replace(",", "")) if before else 0


def say_start(what: str, times: tuple[Times, Times, int], target: dict[str, float] | None) -> None:
    """What recording adds."""
    alone, recorded, hooked = times
    figures = {
        "added_s": recorded.elapsed - alone.elapsed,
        "added_processor_s": recorded.processor - alone.processor,
        "hooked": hooked,
    }
    say(what, figures, target=target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    thousand = build_thousand()
    with tempfile.TemporaryDirectory(prefix="shadowgraph-bench-") as temporary:
        installed, trace = Installed(Path(temporary) / "installed"), Path(temporary) / "trace.sgt"
        times = compare(installed, ["/bin/true"], trace, options.runs)
        say_start("record true, against true", times, {"added_s": 0.25})
        times = compare(installed, [str(thousand)], trace, options.runs)
        say_start("a program with 1,000 functions", times, {"added_s": 0.25})
        installed.environment["SHADOWGRAPH_NO_CACHE"] = "1"
        times = compare(installed, [str(thousand)], trace, options.runs)
        say_start("the same, without the cache", times, None)
        del installed.environment["SHADOWGRAPH_NO_CACHE"]
        large = next((words for words in LARGE if shutil.which(words[0])), None)
        if large is None:
            say_missing("a large program", f"none of {', '.join(words[0] for words in LARGE)} is installed")
            return
        times = compare(installed, large, trace, max(options.runs // 4, 2))
        say_start(f"{large[0]}, hooked as a whole", times, {"added_s": 4} if large[0] == "node" else None)


if __name__ == "__main__":
    main()
