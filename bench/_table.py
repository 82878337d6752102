"""The table: a section for each benchmark, a row for each line, printed as they come."""

from __future__ import annotations

import textwrap
from typing import Any, TextIO

__all__ = ["Table"]

WIDTH = 150
WHAT, RATIO, TO = 60, 15, 14
NOT_FIGURES = {"what", "ratio", "to", "target", "at_least", "kept", "missing"}


class Table:
    """Writes to a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def note(self, text: str) -> None:
        """Say something about the whole table."""
        self._write(text)

    def section(self, title: str) -> None:
        """Begin a benchmark."""
        self._write("")
        self._write(title.upper())

    def row(self, line: dict[str, Any]) -> None:
        """Show one line."""
        mark = {True: "✓", False: "✗"}.get(line.get("kept"), " ")
        what = textwrap.shorten(str(line["what"]), WHAT - 1, placeholder="…")
        if "missing" in line:
            self._write(f"{mark} {what:{WHAT}}not measured: {line['missing']}")
            return
        ratio = f"{line['ratio']:.2f}{_limit(line, 'ratio')}" if "ratio" in line else ""
        to = f"x {line['to']}" if "to" in line else ""
        indent = " " * (WHAT + RATIO + TO + 4) if ratio else " " * (WHAT + 2)
        first, *more = textwrap.wrap(_figures(line), WIDTH - len(indent), break_on_hyphens=False) or [""]
        columns = f"{ratio:{RATIO}} {to:{TO}} " if ratio else ""
        self._write(f"{mark} {what:{WHAT}}{columns}{first}".rstrip())
        for part in more:
            self._write(indent + part)

    def end(self, promises: int, broken: list[str]) -> None:
        """Say how many promises were kept, and which were not."""
        self._write("")
        self._write(f"{promises - len(broken)} of {promises} promises kept" + (":" if broken else "."))
        for what in broken:
            self._write(f"✗ {what}")

    def _write(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _figures(line: dict[str, Any]) -> str:
    """All figures but the ratio, with their names as words, and what they may be."""
    shown = {name: value for name, value in line.items() if name not in NOT_FIGURES and value not in (None, "")}
    return ", ".join(_figure(name, value) + _limit(line, name) for name, value in shown.items())


def _limit(line: dict[str, Any], name: str) -> str:
    """The promise about a figure."""
    for key, sign in (("target", "≤"), ("at_least", "≥")):
        if name in line.get(key, {}):
            return f" ({sign} {_number(line[key][name])})"
    return ""


def _figure(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    for unit in ("ns", "s"):
        if words == unit or words.endswith(f" {unit}"):
            label = words.removesuffix(unit).strip()
            return f"{label} {_number(value)} {unit}".strip()
    return f"{words} {_number(value)}"


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,}" if abs(value) >= 1000 else f"{value:g}"
