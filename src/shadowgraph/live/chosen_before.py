"""What was chosen and hooked for earlier users of a process: one more on the same functions need not look again."""

from __future__ import annotations

from dataclasses import dataclass, field

from shadowgraph.live.numbers import wanted
from shadowgraph.ops.choices import Chosen
from shadowgraph.ops.selection import Selection

__all__ = ["ChosenBefore", "Found"]


@dataclass(frozen=True)
class Found:
    """Functions that are hooked: what was chosen, their labels by number, and which count from the executable alone.

    What was chosen is not known where somebody else has hooked them for us.
    """

    chosen: Chosen | None
    labels: dict[int, str]
    callers: set[int]

    @classmethod
    def of(cls, chosen: Chosen) -> Found:
        """What was found for a selection."""
        return cls(chosen, *wanted(chosen))


@dataclass
class ChosenBefore:
    """Results by selection, for as long as the process has the same code mapped."""

    _code: str = ""
    _found: dict[tuple[str, str], Found] = field(default_factory=dict)

    def get(self, pid: int, selection: Selection) -> Found | None:
        """What was found before for such a selection, None if that is not known or may have changed."""
        if _code_of(pid) != self._code:
            self._found.clear()
        return self._found.get(_key(selection))

    def put(self, pid: int, selection: Selection, found: Found) -> None:
        """Everything of it is hooked now."""
        code = _code_of(pid)
        if code != self._code:
            self._found.clear()
            self._code = code
        self._found[_key(selection)] = found


def _key(selection: Selection) -> tuple[str, str]:
    return selection.text, selection.libcalls


def _code_of(pid: int) -> str:
    """The executable mappings of files: a module that comes or goes changes them."""
    with open(f"/proc/{pid}/maps", errors="surrogateescape", newline="\n") as file:
        return "".join(line for line in file if "x" in line[: line.find(" ") + 5] and "/" in line)
