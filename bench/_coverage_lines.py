"""coverage.py names every refused function; the table shows the figures alone, and holds them against the promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["coverage_line"]

# The programs that the promise names; sqlite3's shell and libc, which other benchmarks trace as well, are only shown.
PROMISED = ("bash", "perl", "python3", "libpython", "node", "libnode", "libsqlite3", "cc1")
LEAST_PERCENT = 99.9
# Planning and encoding node's 80,000 functions may take 4 s; other large programs are shown as if they had as many.
FUNCTIONS, SECONDS = 80_000, 4.0
TIMED = ("node", "libnode")
LARGE = 10_000


def coverage_line(line: dict[str, Any]) -> dict[str, Any]:
    """A line as the other scripts print it."""
    if "missing" in line:
        return line
    name = Path(line["program"]).name
    seconds = sum(line["seconds"].values())
    result: dict[str, Any] = {
        "what": name,
        "functions": line["functions"],
        "percent": line["percent"],
        "percent_of_traceable": line["hookable_of_traceable"],
        "not_traceable": " ".join(f"{reason} {count:,}" for reason, count in line["untraceable"].items()) or 0,
        "planning_s": round(seconds, 3),
    }
    kept = []
    if name.startswith(PROMISED):
        result["at_least"] = {"percent_of_traceable": LEAST_PERCENT}
        kept.append(line["hookable_of_traceable"] >= LEAST_PERCENT)
    if line["functions"] >= LARGE:
        result["planning_80000_s"] = round(seconds * FUNCTIONS / line["functions"], 2)
        if name.startswith(TIMED):
            result["target"] = {"planning_80000_s": SECONDS}
            kept.append(result["planning_80000_s"] <= SECONDS)
    return result | ({"kept": all(kept)} if kept else {})
