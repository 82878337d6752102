"""From what a user calls a function to the functions of a trace that are meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shadowgraph.errors import UsageError

if TYPE_CHECKING:
    from shadowgraph.trace.reader import Trace
    from shadowgraph.view.names import Names

__all__ = ["find_called"]


def find_called(trace: Trace, names: Names, *texts: str) -> list[int]:
    """The functions that were called and have one of these names, or that a pattern matches as `record -f` would do.

    A name is one as the views print it (`malloc [libc.so.6]`), as it is in the file, or demangled, whole or without its
    parameters and its return type; `module!name` is one in a module. Else UsageError with the nearest names.
    """
    from shadowgraph.image.demangle import demangle_one
    from shadowgraph.ops.readable_forms import readable_forms
    from shadowgraph.ops.selection import function_rule, nearest_names

    forms: dict[int, tuple[str, ...]] = {}
    for function in names.ids if texts else ():
        forms[function] = (*readable_forms(demangle_one(names.raw(function))), names.raw(function))
    all_found: set[int] = set()
    for text in texts:
        found = [f for f in names.ids if text in forms[f] or text == f"{names.function(f)} [{names.module(f)}]"]
        if not found:
            rule = function_rule(text, include=True)
            found = [f for f in names.ids if rule.wants_module(names.module(f)) and any(map(rule.function, forms[f]))]
        if not found:
            near = nearest_names([text], sorted({form for known in forms.values() for form in known}))
            raise UsageError(f"{trace.path}: no function that was called is named {text!r}{near}")
        all_found.update(found)
    return [f for f in names.ids if f in all_found]
