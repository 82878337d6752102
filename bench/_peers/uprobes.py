"""Kernel uprobes and uretprobes on the traced functions, recorded into a trace buffer of our own (tracefs)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _calls import Figures, Load, run
from _programs import build_calls

from _peers.peer import SHAPES, Measured, NotInstalled

__all__ = ["measure"]

TRACEFS = Path("/sys/kernel/tracing")
GROUP = "shadowgraph_bench"


def measure(folder: Path, rounds: int, calls: int) -> Measured:
    """An instance with the default size of its buffer, which is overwritten."""
    if not os.access(TRACEFS / "uprobe_events", os.W_OK):
        raise NotInstalled(f"{TRACEFS}/uprobe_events cannot be written (no uprobes, or not root)")
    program, figures = build_calls(), Figures()
    with _probes(program) as instance:
        made = run([str(program), *Load(SHAPES, rounds, calls).arguments], figures)
        stats = [path.read_text() for path in instance.glob("per_cpu/cpu*/stats")]
    kept, size = _total(stats, "entries"), _total(stats, "bytes")
    # Two events a call; the bytes are those of what was kept.
    recorded = kept // 2
    return Measured(figures, made, size * made // max(recorded, 1), recorded)


@contextmanager
def _probes(program: Path) -> Iterator[Path]:
    """Probes on the traced functions while the block runs; the folder of the trace instance."""
    symbols = subprocess.run(["nm", str(program)], capture_output=True, text=True, check=True).stdout
    functions = re.findall(r"^([0-9a-f]+) [tT] (traced_\w+)$", symbols, re.MULTILINE)
    instance = TRACEFS / "instances" / GROUP
    instance.mkdir(exist_ok=True)
    names: list[str] = []
    try:
        for address, function in functions:
            for kind in ("p", "r"):
                # The text of an executable lies at the same offset in the file as in memory here.
                name = f"{GROUP}/{kind}_{function}"
                _write("uprobe_events", f"{kind}:{name} {program}:0x{address}")
                names.append(name)
        (instance / "events" / GROUP / "enable").write_text("1")
        yield instance
    finally:
        enable = instance / "events" / GROUP / "enable"
        if enable.exists():
            enable.write_text("0")
        instance.rmdir()
        for name in names:
            _write("uprobe_events", f"-:{name}")


def _write(file: str, line: str) -> None:
    """Append, as tracefs wants it: truncating would remove the probes of others, and it knows no end to seek to."""
    stream = os.open(TRACEFS / file, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(stream, f"{line}\n".encode())
    finally:
        os.close(stream)


def _total(stats: list[str], name: str) -> int:
    return sum(int(found[1]) for text in stats if (found := re.search(rf"^{name}: (\d+)", text, re.MULTILINE)))
