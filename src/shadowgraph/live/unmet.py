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
        self._rules: dict[str, Rule] = {}  # all that were unmatched once
        self._said: dict[str, str] = {}  # what there was to say of them then
        self._awaited: dict[str, str] = {}  # the same, where a library may come that has them

    def met(self, selection: Selection) -> None:
        """Take note of the patterns that have matched something."""
        self._met |= selection.matched

    def expect(self, selection: Selection) -> None:
        """Take note of the others, of which there is nothing to be said as long as more may come."""
        self._rules |= {rule.text: rule for rule in selection.unmatched}

    def add(self, selection: Selection, awaited: Sequence[Rule]) -> None:
        """Take note of the others, and of what there is to say. Libraries of the ``awaited`` ones are not there yet."""
        self.expect(selection)
        for rule in awaited:
            near = near_modules(rule, self._known_modules.all())
            said = f"{rule.text}: no such library is loaded yet; it will be seen from its first call on{near}"
            self._awaited.setdefault(rule.text, said)
        for rule in selection.unmatched:
            if rule not in awaited and rule.text not in self._said:
                self._said[rule.text] = why_unmatched(rule, self._known_modules)

    def sentences(self, awaited: Container[str]) -> Iterator[str]:
        """What there is to say of what nothing has matched until now. ``awaited``: patterns that still can be."""
        said = {**self._said, **self._awaited}
        for text, rule in list(self._rules.items()):
            if text not in self._met and text not in awaited:
                yield why_unmatched(rule, self._known_modules)
            elif text not in self._met and text in said:
                yield said[text]

    def awaited(self, awaited: Container[str]) -> Iterator[str]:
        """Those of the sentences that are about libraries which may come."""
        return (said for text, said in list(self._awaited.items()) if text in awaited and text not in self._met)
