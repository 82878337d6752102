"""What a user may have meant by a pattern that matches nothing, spelled so that it can be copied and works."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from shadowgraph.ops.known_modules import KnownModule
from shadowgraph.ops.selection import Rule, nearest

__all__ = ["suggested"]

_MOST = 5
_MOST_LIBRARIES = 3


def suggested(rules: Sequence[Rule], modules: Sequence[KnownModule]) -> str:
    """The end of a sentence about rules that match nothing in these modules; "" if there is nothing to suggest.

    A pattern without a module means functions of the executable and those it calls. So what lies elsewhere needs the
    library's name.
    """
    elsewhere = [text for rule in rules if rule.module is None for text in _in_libraries(rule, modules)]
    if elsewhere:
        return f"; what only libraries call needs the library's name: {', '.join(elsewhere)}"
    spelled = _spelled(modules)
    near = dict.fromkeys(text for rule in rules for name in nearest(rule.text, spelled) for text in spelled[name])
    return f"; the nearest names are {', '.join(list(near)[:_MOST])}" if near else ""


def _in_libraries(rule: Rule, modules: Sequence[KnownModule]) -> list[str]:
    """The same pattern for those libraries that have what it matches."""
    found = [known for known in _libraries(modules) if len(known.name_index.rows_of(rule))]
    return [shlex.quote(f"{_name(known)}!{rule.function_text}") for known in found[:_MOST_LIBRARIES]]


def _spelled(modules: Sequence[KnownModule]) -> dict[str, list[str]]:
    """Each name with what can be written for it."""
    programs = [known for known in modules if known.image.is_program]
    plain = dict.fromkeys(name for known in programs for name in known.readable_names())
    plain |= dict.fromkeys(imported.name for known in programs for imported in known.imports)
    spelled = {name: [shlex.quote(name)] for name in plain}
    for known in _libraries(modules):
        for name in known.readable_names():
            if name not in plain:
                spelled.setdefault(name, []).append(shlex.quote(f"{_name(known)}!{name}"))
    return spelled


def _libraries(modules: Sequence[KnownModule]) -> list[KnownModule]:
    """The small ones first: a program's own are smaller than libc."""
    return sorted((known for known in modules if not known.image.is_program), key=lambda known: len(known.functions))


def _name(known: KnownModule) -> str:
    return os.path.basename(known.path)
