"""What there is to say in the end, each once; of executed programs that nobody follows a sentence for each reason."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Notes", "enumerated"]

_MOST_NAMES = 5
# What an error says it of, and the reason.
_ERROR = re.compile(r"(/[^:]*): (.*)|process (\d+):? (.*)", re.DOTALL)


class Notes:
    """Sentences, and errors that were in the way of following programs: those that differ in a name alone, together."""

    def __init__(self) -> None:
        self._said: dict[str, None] = {}
        self._found: dict[tuple[str, str], dict[str, str]] = {}  # by kind and reason: what the error says, by name

    def unfollowed(self, error: Exception | str) -> None:
        """An executed program is not followed."""
        error = str(error)
        match = _ERROR.fullmatch(error)
        path, reason, pid, other = match.groups() if match else ("", error, None, "")
        key = ("programs", reason) if pid is None else ("processes", other)
        self._found.setdefault(key, {})[pid if pid is not None else path] = error

    def say(self, *sentences: str) -> None:
        """Have this said, once."""
        self._said |= dict.fromkeys(sentences)

    def sentences(self) -> list[str]:
        """What there is to say."""
        found = list(self._said)
        for (kind, reason), errors in self._found.items():
            if len(errors) == 1:
                found.append(f"not followed: {next(iter(errors.values()))}")
            else:
                found.append(f"not followed: {len(errors):,} {kind} ({enumerated(errors)}), each of which {reason}")
        return found


def enumerated(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are."""
    known = list(names)
    more = len(known) - _MOST_NAMES
    return ", ".join(known[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
