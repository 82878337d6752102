"""coverage.py names every refused function; the table shows the figures alone, and holds them against the promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["coverage_line"]

# The programs that the promise names; libc, which other benchmarks trace as well, is only shown.
PROMISED = ("bash", "perl", "python3", "node", "sqlite3", "libsqlite3", "cc1")
LEAST_PERCENT = 99.9
# Planning and encoding 80,000 functions may take 4 s; only of large programs does it make sense to scale up.
FUNCTIONS, SECONDS = 80_000, 4.0
LARGE = 10_000


def coverage_line(line: dict[str, Any]) -> dict[str, Any]:
    """A line as the other scripts print it."""
    name = Path(line["program"]).name
    seconds = sum(line["seconds"].values())
    result: dict[str, Any] = {
        "what": name,
        "functions": line["functions"],
        "percent": line["percent"],
        "percent_of_traceable": line["hookable_of_traceable"],
        "planning_s": round(seconds, 3),
    }
    kept = []
    if name.startswith(PROMISED):
        result["at_least"] = {"percent_of_traceable": LEAST_PERCENT}
        kept.append(line["hookable_of_traceable"] >= LEAST_PERCENT)
    if line["functions"] >= LARGE:
        result["planning_80000_s"] = round(seconds * FUNCTIONS / line["functions"], 2)
        result["target"] = {"planning_80000_s": SECONDS}
        kept.append(result["planning_80000_s"] <= SECONDS)
    return result | ({"kept": all(kept)} if kept else {})
