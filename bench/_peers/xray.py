"""LLVM XRay in its flight data recorder mode: sleds compiled into the traced functions by clang."""

from __future__ import annotations

import subprocess
from pathlib import Path

from _calls import Figures, Load, run
from _programs import XRAY, NotBuilt, build_calls

from _peers.peer import SHAPES, Measured, NotInstalled

__all__ = ["measure"]


def measure(folder: Path, rounds: int, calls: int) -> Measured:
    """Its own choice of buffers: 100 of 16 KiB, the oldest overwritten; no call is left out for being short."""
    try:
        program = build_calls(XRAY)
    except NotBuilt as reason:
        raise NotInstalled(str(reason)) from None
    figures = Figures()
    logs = folder / "xray-log."
    for old in folder.glob("xray-log.*"):
        old.unlink()
    options = f"patch_premain=false xray_logfile_base={logs}"
    made = run([str(program), *Load(SHAPES, rounds, calls).arguments], figures, XRAY_OPTIONS=options)
    found = list(folder.glob("xray-log.*"))
    recorded = _count(found[0]) if found else None
    # The log holds only what was kept: its size for a call is that of those.
    size = found[0].stat().st_size * made // recorded if found and recorded else None
    return Measured(figures, made, size, recorded)


def _count(log: Path) -> int | None:
    """Function entries in the log."""
    try:
        done = subprocess.run(["llvm-xray", "convert", "-f", "yaml", str(log)], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.count("kind: function-enter,") if done.returncode == 0 else None
