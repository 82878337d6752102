"""What was wanted and could not be hooked: how many functions, which, and why."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from shadowgraph.image import SENTENCES, Reason
from shadowgraph.image.demangle import demangle
from shadowgraph.ops.known_modules import KnownModule
from shadowgraph.ops.readable_forms import readable_forms
from shadowgraph.target.modules import Module

__all__ = ["OfModule", "Refusals", "Refused"]

_MOST_NAMES = 5


class OfModule(Protocol):
    """Functions of one module (ops/choices.py)."""

    @property
    def module(self) -> Module:
        """The module as it is loaded."""
        ...

    @property
    def known(self) -> KnownModule:
        """What is known of its file."""
        ...

    @property
    def names(self) -> dict[int, str]:
        """What some rows are called instead of what the file calls them."""
        ...


class _Choice(OfModule, Protocol):
    """The same with the numbers of those that are hooked."""

    @property
    def numbers(self) -> dict[int, int]:
        """By row."""
        ...


class Refused(NamedTuple):
    """A function, by the path of its module and its row there, and why it is not hooked."""

    path: str
    row: int
    reason: Reason
    name: str = ""


class Refusals:
    """Functions that were refused, each once, in however many processes and for however many users that was."""

    def __init__(self, executable: str = "") -> None:
        """Functions of the ``executable`` (a path) are named without it."""
        self.executable = executable
        self._found: dict[tuple[str, int], Refused] = {}
        self._modules: dict[str, KnownModule] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, choice: OfModule, row: int, reason: Reason) -> None:
        """A function of a module cannot be hooked."""
        path = choice.module.path
        self._modules[path] = choice.known
        self._found[path, row] = Refused(path, row, reason, choice.names.get(row, ""))

    def hooked(self, choices: Iterable[_Choice]) -> None:
        """These functions are hooked by now, whatever was in the way before."""
        for choice in choices:
            for path, row in [key for key in self._found if key[0] == choice.module.path and key[1] in choice.numbers]:
                del self._found[path, row]

    def update(self, others: Refusals | Iterable[Refused]) -> None:
        """Others were refused, too."""
        if isinstance(others, Refusals):
            self.executable = self.executable or others.executable
            self._modules |= others._modules
            others = others._found.values()
        self._found |= {(one.path, one.row): one for one in others}

    def renew(self, executable: str, found: Iterable[Refused]) -> None:
        """These and no others have been refused."""
        self.executable = executable
        self._found.clear()
        self.update(found)

    @property
    def reasons(self) -> Counter[Reason]:
        """How many there are for each reason."""
        return Counter(one.reason for one in self._found.values())

    @property
    def foremost(self) -> Reason | None:
        """The reason that most of them have; None if there are none."""
        return max(self.reasons.items(), key=lambda one: one[1], default=(None, 0))[0]

    def named(self) -> list[Refused]:
        """All of them, with names."""
        return [self._named(one) for one in self._found.values()]

    def _named(self, one: Refused) -> Refused:
        if one.name:
            return one
        name = self._modules[one.path].functions.name(one.row)
        forms = readable_forms(demangle([name])[0]) if name.startswith(("_Z", "_R")) else ()
        return one._replace(name=forms[-1] if forms else name)

    def sentence(self) -> str:
        """How many, why, which, and where to look."""
        reasons, count = self.reasons, len(self._found)
        (most, number), *others = reasons.most_common()
        why = "because" if count == 1 else f"{f'{number:,} of them' if others else 'all'} for this reason:"
        # Those of the reason that is given come first.
        shown = sorted(self._found.values(), key=lambda one: one.reason is not most)[:_MOST_NAMES]
        names = []
        for path, _, _, name in map(self._named, shown):
            names.append(name if path == self.executable else f"{name} [{os.path.basename(path)}]")
        more = f" and {count - len(shown):,} more" if count > len(shown) else ""
        module = Counter(one.path for one in self._found.values()).most_common(1)[0][0]
        which = f"{'it is' if count == 1 else 'they are'} {', '.join(names)}{more}"
        look = f"shadowgraph functions --refused {shlex.quote(module)}"
        functions = "1 function" if count == 1 else f"{count:,} functions"
        return f"{functions} could not be hooked, {why} {SENTENCES[most]}; {which} ({look})"
