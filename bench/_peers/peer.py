"""What is asked of a peer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _calls import Figures

__all__ = ["SHAPES", "Measured", "NotInstalled", "Peer", "folder_size", "needs"]

SHAPES = ("leaf", "recursion", "chain")


class NotInstalled(Exception):
    """Why a peer is not there to be measured, in a few words."""


@dataclass(frozen=True)
class Measured:
    """Of one run: the figures of `calls`, and what became of the calls it made.

    ``bytes`` the size of the trace, as the peer left it, or None where nothing is stored; ``recorded`` the calls in
    it, or None if that cannot be told.
    """

    figures: Figures
    made: int
    bytes: int | None = None
    recorded: int | None = None


@dataclass(frozen=True)
class Peer:
    """A tracer; ``measure(folder, rounds, calls)`` runs it once."""

    name: str
    measure: Callable[[Path, int, int], Measured]
    calls: int = 100_000


def needs(program: str) -> str:
    """The path of a program, or NotInstalled."""
    found = shutil.which(program)
    if found is None:
        raise NotInstalled(f"{program} is not installed")
    return found


def folder_size(folder: Path) -> int:
    """Bytes of all files in a folder and below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
