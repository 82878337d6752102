"""What a user may have meant by a pattern that matches nothing, spelled so that it can be copied and works."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from shadowgraph.image.names import is_nameless
from shadowgraph.ops.known_modules import KnownModule
from shadowgraph.ops.selection import Rule, nearest

__all__ = ["nameless", "near_modules", "suggested"]

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
    names = f"; the nearest names are {', '.join(list(near)[:_MOST])}" if near else ""
    return names + "".join(
        nameless(_name(known), known.readable_names()) for known in modules if known.image.is_program
    )


def nameless(module: str, names: Sequence[str]) -> str:
    """The end of a sentence about a file of which most functions have no names: it is stripped; else ""."""
    without = [name for name in names if is_nameless(name)]
    if 2 * len(without) <= len(names) or not without:
        return ""
    return f"; {module} is stripped: most of its functions go by their addresses, like {without[0]}"


def near_modules(rule: Rule, modules: Sequence[KnownModule]) -> str:
    """The end of a sentence about a library that is not there: those that may be meant, by another name; or ""."""
    wanted = rule.module_text.strip("*")
    near = [
        shlex.quote(f"{_name(known)}!{rule.function_text}")
        for known in modules
        if wanted and (rule.wants_module(known.image.soname) or _name(known).startswith(wanted))
    ]
    return f"; {' or '.join(near[:_MOST_LIBRARIES])} may be meant" if near else ""


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
