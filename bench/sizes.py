"""Bytes a call: in the buffers between program and recorder, and on disk, for real programs.

    python bench/sizes.py

A call is one record of 16 bytes; those with an escape before them (a long duration, another end than a return) have
two. What the folder holds besides calls.parquet (names of functions, threads, processes) is counted too.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from _lines import say, say_missing
from _programs import ROOT, SOURCES

sys.path.insert(0, str(ROOT / "src"))

from shadowgraph.agent.inject import Settings
from shadowgraph.ops.recording import Recording
from shadowgraph.ops.selection import Selection, function_rule, module_rule
from shadowgraph.trace.convert import convert
from shadowgraph.trace.folder import CALLS, SPOOL, create_folder
from shadowgraph.trace.spool_reader import Spool
from shadowgraph.trace.spool_writer import SpoolWriter

BASH = "for ((i = 0; i < 20000; i++)); do x=$(( (x * 5 + i) % 1000 )); done; echo $x"
PERL = "my %h; for my $i (0 .. 200000) { $h{$i % 1000} .= chr(65 + $i % 26) } print length join '', values %h"
SQL = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 50000) select sum(i * i % 7) from n"


@dataclass(frozen=True)
class Program:
    """A program to record: its command, and the module that is traced besides what is traced by default."""

    name: str
    command: tuple[str, ...]
    module: str | None = None


COMPILER = max(Path("/usr/lib/gcc").glob("x86_64-linux-gnu/*/cc1"), default=Path("cc1"))
PROGRAMS = (
    Program("bash", ("bash", "-c", BASH)),
    Program("perl", ("perl", "-e", PERL)),
    Program("sqlite3", ("sqlite3", ":memory:", SQL), "libsqlite3*"),
    Program("gzip", ("gzip", "-c", str(ROOT / "native" / "agent" / "frames.c"))),
    Program("cc1", (str(COMPILER), "-quiet", "-O2", str(SOURCES / "shapes.c"), "-DTWIN=a", "-o", os.devnull)),
)


def measure(program: Program, path: str, folder: Path) -> dict[str, float | int]:
    """Record a program with everything of its executable traced."""
    command = list(program.command)
    rules = [function_rule("*", include=True), module_rule(program.module)] if program.module else []
    create_folder(folder, {"program": path, "arguments": command})
    spool = SpoolWriter(folder / SPOOL)
    Recording(spool, Selection(rules), Settings()).run(path, command)
    spool.close()
    reader = Spool(folder / SPOOL)
    records = sum(length for pieces in reader.pieces.values() for _, length in pieces)
    reader.close()
    calls = int(convert(folder)["calls"])
    stored = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {
        "calls": calls,
        "memory_bytes_per_call": records / calls,
        "disk_bytes_per_call": (folder / CALLS).stat().st_size / calls,
        "folder_bytes_per_call": stored / calls,
    }


def main() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    saved = os.dup(1)
    with tempfile.TemporaryDirectory(prefix="shadowgraph-bench-") as temporary:
        for program in PROGRAMS:
            path = shutil.which(program.command[0])
            if path is None:
                say_missing(program.name, "is not installed")
                continue
            os.dup2(null, 1)
            try:
                figures = measure(program, path, Path(temporary) / f"{program.name}.sgt")
            finally:
                os.dup2(saved, 1)
            say(program.name, figures, target={"memory_bytes_per_call": 16.1, "disk_bytes_per_call": 8})


if __name__ == "__main__":
    main()
