"""All benchmarks, as one table.

    python bench [--quick] [--json] [NAME …]

Runs the scripts of this folder one after the other (NAME: some of them) and shows what they say as it comes: whether a
promise was kept, what was measured, the ratio and what it is a ratio to, and the other figures; what a figure was
promised to be stands behind it. With --json the lines of the scripts are passed on, each with the name of its script.
README.md tells how each is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _coverage_lines import coverage_line
from _table import Table

FOLDER = Path(__file__).resolve().parent

BUSY = 0.3


@dataclass(frozen=True)
class Benchmark:
    """A script, its title in the table, and the arguments that make it quick."""

    name: str
    title: str
    quick: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        """Where it is."""
        return FOLDER / f"{self.name}.py"


BENCHMARKS = (
    Benchmark("call_cost", "What a call costs the program", ("--runs", "1", "--rounds", "6")),
    Benchmark("path_parts", "What parts of a traced call cost", ("--runs", "2", "--rounds", "12")),
    Benchmark("users_cost", "What users cost, and their coming and going", ("--rounds", "4", "--times", "6")),
    Benchmark("layouts", "Three layouts of what a call keeps for its users", ("--rounds", "4")),
    Benchmark("predicate_cost", "What it costs to ask whether a call matters"),
    Benchmark("against_peers", "What a recorded call costs elsewhere", ("--runs", "1", "--rounds", "5")),
    Benchmark("start_up", "What starting costs", ("--runs", "4")),
    Benchmark("draining", "Taking records from a running program", ("--runs", "1", "--calls", "1e7")),
    Benchmark("sizes", "Bytes a call"),
    Benchmark("coverage", "How many functions can be hooked, and how long planning takes"),
    Benchmark("trace_views", "Reading traces", ("--calls", "1e7")),
)


def lines_of(benchmark: Benchmark, quick: bool) -> Iterator[dict[str, Any]]:
    """What a script says, line by line; RuntimeError if it fails."""
    command = [sys.executable, str(benchmark.script), *(benchmark.quick if quick else ())]
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for text in process.stdout:
            line = json.loads(text)
            yield coverage_line(line) if benchmark.name == "coverage" else line
    if process.returncode:
        raise RuntimeError(f"{benchmark.name} failed")


def run(benchmark: Benchmark, quick: bool, table: Table | None) -> tuple[int, list[str]]:
    """Run one and show it; how many promises there were, and those that were not kept."""
    promises, broken = 0, []
    if table:
        table.section(benchmark.title)
    for line in lines_of(benchmark, quick):
        if table:
            table.row(line)
        else:
            print(json.dumps({"benchmark": benchmark.name} | line), flush=True)
        if "kept" in line:
            promises += 1
            broken += [] if line["kept"] else [line["what"]]
    return promises, broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(b.name for b in BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller traces: less exact")
    parser.add_argument("--json", action="store_true", help="lines of JSON instead of a table")
    options = parser.parse_args()
    known = {benchmark.name: benchmark for benchmark in BENCHMARKS if benchmark.script.exists()}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    table = None if options.json else Table(sys.stdout)
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    if table and busy > BUSY:
        table.note(
            f"This machine is busy with other work ({busy:.1f} running threads a processor): seconds are too long."
        )
    promises, broken, failed = 0, [], []
    for name in options.names or known:
        try:
            made, not_kept = run(known[name], options.quick, table)
        except RuntimeError as error:
            failed.append(str(error))
            continue
        promises += made
        broken += not_kept
    if table:
        table.end(promises, broken)
    for reason in failed:
        print(reason, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
