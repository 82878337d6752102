"""Call counts of a program under ``valgrind --tool=callgrind``, by function address, to hold a trace's counts against.

Counting by address makes no difference between programs with and without symbols. Where there are symbols callgrind
takes a jump from one function to another for the call it is; where there are none it cannot know, but lists the jumps:
those that come from outside of a function to its first byte are its tail calls.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from tests.support.build import scratch_folder
from tests.support.recording import Outcome, Recording, environment

__all__ = [
    "Difference",
    "Jump",
    "Profile",
    "callgrind_profile",
    "callgrind_variables",
    "calls_by_address",
    "count_differences",
    "parse_callgrind",
]


@dataclass(frozen=True)
class Jump:
    """A jump that was taken ``count`` times, between two addresses of one object."""

    source: int
    target: int
    count: int


@dataclass
class Profile:
    """What callgrind saw of one object file: calls by the address called, and jumps. Addresses are the file's own."""

    calls: Counter[int] = field(default_factory=Counter)
    jumps: list[Jump] = field(default_factory=list)

    def entries(self, functions: dict[int, int]) -> Counter[int]:
        """How often each function (address: size) was entered, by a call or by a jump from outside of it."""
        counts = Counter({address: count for address, count in self.calls.items() if count})
        for jump in self.jumps:
            size = functions.get(jump.target)
            if size is not None and not jump.target <= jump.source < jump.target + size:
                counts[jump.target] += jump.count
        return counts


def callgrind_profile(
    command: list[str],
    *,
    stdin: bytes = b"",
    folder: Path | None = None,
    timeout: float = 300,
    variables: dict[str, str] | None = None,
) -> tuple[Outcome, dict[str, Profile]]:
    """Run a program under callgrind: its outcome, and what was seen of each object file, by its path."""
    output = Path(tempfile.mkdtemp(prefix="callgrind-", dir=scratch_folder())) / "out"
    options = ["--dump-instr=yes", "--collect-jumps=yes", "--compress-pos=no", f"--callgrind-out-file={output}"]
    done = subprocess.run(
        ["valgrind", "-q", "--tool=callgrind", *options, *command],
        input=stdin,
        capture_output=True,
        timeout=timeout,
        env=environment() | (variables or {}),
        cwd=folder or scratch_folder(),
    )
    with output.open() as lines:
        return Outcome(done.stdout, done.stderr, done.returncode), parse_callgrind(lines)


@cache
def callgrind_variables() -> dict[str, str]:
    """The variables that valgrind adds to a program's environment: programs that look at it count them."""
    command = ["valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=/dev/null", "env"]
    shown = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
    seen = dict(line.split("=", 1) for line in shown.splitlines())
    return {name: value for name, value in seen.items() if environment().get(name) != value}


def parse_callgrind(lines: Iterable[str]) -> dict[str, Profile]:
    """Read a profile whose positions are uncompressed instruction addresses: {object path: what was seen of it}.

    The format: https://valgrind.org/docs/manual/cl-format.html. ``ob=`` names the object of what follows, ``cob=`` that
    of the next ``calls=COUNT TARGET LINE`` if it is another one. ``jump=COUNT TARGET LINE`` and ``jcnd=TAKEN/REACHED
    TARGET LINE`` are followed by a line that begins with the address of the jump. Names are ``(number) name`` the first
    time and ``(number)`` from then on.
    """
    names: dict[str, str] = {}
    profiles: dict[str, Profile] = {}
    current = called = ""
    pending: tuple[int, int] | None = None
    for line in lines:
        if pending is not None:
            target, count = pending
            profiles.setdefault(current, Profile()).jumps.append(Jump(int(line.split()[0], 16), target, count))
            pending = None
            continue
        key, equals, value = line.rstrip("\n").partition("=")
        if not equals:
            continue
        if key in {"ob", "cob"}:
            number, _, name = value.partition(" ")
            path = names.setdefault(number, name)
            if key == "ob":
                current = path
            else:
                called = path
        elif key == "calls":
            times, target_text = value.split()[:2]
            profiles.setdefault(called or current, Profile()).calls[int(target_text, 16)] += int(times)
            called = ""
        elif key in {"jump", "jcnd"}:
            times, target_text = value.split()[:2]
            pending = int(target_text, 16), int(times.split("/")[0])
    return profiles


@dataclass(frozen=True)
class Difference:
    """A function that callgrind and the trace do not count alike."""

    address: int
    name: str
    callgrind: int
    traced: int

    def __str__(self) -> str:
        return f"{self.name} at {self.address:#x}: {self.traced} calls traced, {self.callgrind} under callgrind"


def _functions(recording: Recording, module: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(recording.folder / "functions.parquet").to_pylist()
    return [row for row in rows if row["module_path"] == str(module.resolve())]


def calls_by_address(recording: Recording, module: Path) -> Counter[int]:
    """How many calls of each function of a module the trace holds, counted from the calls themselves."""
    calls = parquet.read_table(recording.folder / "calls.parquet", columns=["function"])["function"].to_numpy()
    times = np.bincount(calls, minlength=1)
    rows = [row for row in _functions(recording, module) if row["function"] < len(times)]
    return Counter({row["address"]: int(times[row["function"]]) for row in rows})


def count_differences(recording: Recording, module: Path, profile: Profile) -> tuple[int, list[Difference]]:
    """Compare the calls of one module: how many functions were called, and those whose counts differ."""
    rows = _functions(recording, module)
    name = {row["address"]: row["name"] for row in rows}
    traced = calls_by_address(recording, module)
    expected = profile.entries({row["address"]: row["size"] for row in rows})
    called = sorted(address for address in set(expected) | set(traced) if expected[address] or traced[address])
    different = [
        Difference(address, name.get(address, "not in the trace"), expected[address], traced[address])
        for address in called
        if expected[address] != traced[address]
    ]
    return len(called), different
