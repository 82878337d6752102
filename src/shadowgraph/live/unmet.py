"""Patterns that nothing has matched: what is said of them while that may come, and when it is too late for it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.remarks import why_unmatched
from shadowgraph.ops.selection import Rule, Selection
from shadowgraph.ops.suggestions import near_modules

__all__ = ["Unmet"]


class Unmet:
    """Those of one target, whatever programs it and its children execute."""

    def __init__(self, known_modules: KnownModules) -> None:
        self._known_modules = known_modules
        self._met: set[str] = set()
        self._missing: dict[str, str] = {}  # what there is to say of a pattern
        self._awaited: dict[str, tuple[Rule, str]] = {}  # the same, where a library may come that has it

    def met(self, selection: Selection) -> None:
        """Take note of the patterns that have matched something."""
        self._met |= selection.matched

    def add(self, selection: Selection, awaited: Sequence[Rule]) -> None:
        """Take note of the others. Libraries of the ``awaited`` ones are not there yet."""
        for rule in awaited:
            near = near_modules(rule, self._known_modules.all())
            said = f"{rule.text}: no such library is loaded yet; it will be seen from its first call on{near}"
            self._awaited.setdefault(rule.text, (rule, said))
        for rule in selection.unmatched:
            if rule not in awaited and rule.text not in self._missing:
                self._missing[rule.text] = why_unmatched(rule, self._known_modules)

    def sentences(self, awaited: Container[str]) -> Iterator[str]:
        """What there is to say of what nothing has matched until now. ``awaited``: patterns that still can be."""
        for text, said in list(self._missing.items()):
            if text not in self._met:
                yield said
        yield from self.awaited(awaited)
        for text, (rule, _) in list(self._awaited.items()):
            if text not in self._met and text not in awaited:
                yield why_unmatched(rule, self._known_modules)

    def awaited(self, awaited: Container[str]) -> Iterator[str]:
        """Those of the sentences that are about libraries which may come."""
        return (said for text, (_, said) in list(self._awaited.items()) if text in awaited and text not in self._met)
