"""The forms of a readable C++ or Rust name by which a user may mean a function: with or without what is around it.

Demangled names of template functions begin with their return type, those of other functions do not: the first are
mangled with it, so that overloads differ (Itanium C++ ABI, 5.1.5.3). Nobody thinks of it as a part of the name.
"""

from __future__ import annotations

import re

__all__ = ["readable_forms", "shortest_form", "without_parameters"]

_BEHIND_PARAMETERS = re.compile(r"( const| volatile| noexcept| ?&&?| \[[^\]]*\])*")
# What changes the depth of brackets, divides words, or ends the search: behind `operator` any of these may be a name.
_MARKS = re.compile(r"->|[<>()\[\]{} ]|(?<![\w$])operator(?![\w$])")
_CLOSED_BY = {">": "<", ")": "(", "]": "[", "}": "{"}
# Of a function that encloses another one: `f(int) const::{lambda()#1}::operator()`.
_QUALIFIER = re.compile(r"(const|volatile|noexcept|&&?|\[)")
# The linker's and the compiler's own: "vtable for X", "virtual thunk to f()".
_NOT_FUNCTIONS = (" for ", "thunk to ", "clause to ")


def readable_forms(name: str) -> tuple[str, ...]:
    """A readable name: whole, without its parameters, and both without the return type, if it begins with one."""
    forms = (name, without_parameters(name))
    start = _name_start(forms[1])
    if not start:
        return forms
    whole, short = name[start:], forms[1][start:]
    if short.startswith(("(*", "(&")) and short.endswith(")"):  # it returns a pointer to a function
        whole = short[2:-1]
        short = without_parameters(whole)
    return (*forms, whole, short)


def shortest_form(name: str) -> str:
    """Without parameters and without a return type."""
    return readable_forms(name)[-1]


def without_parameters(name: str) -> str:
    """A readable C++ name without its list of parameters and what follows it: `f(int) const` is `f`."""
    end = name.rfind(")")
    if not _BEHIND_PARAMETERS.fullmatch(name, end + 1):  # "(anonymous namespace)::f" has none
        return name
    depth = 0
    for at in range(end, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            return name[:at] or name
    return name


def _name_start(name: str) -> int:
    """Where the name itself begins in one without parameters: 0, unless it has a return type."""
    if " " not in name or "<" not in name:
        return 0
    start, opened = 0, ""
    for mark in _MARKS.finditer(name):
        text = mark[0]
        if text == " ":
            if not opened and not _QUALIFIER.match(name, mark.end()):
                start = mark.end()
        elif text == "operator":
            if not opened:
                break
        elif text in _CLOSED_BY:
            at = opened.rfind(_CLOSED_BY[text])
            # A > that closes nothing is a comparison, in an expression that is an argument of a template.
            opened = opened[:at] if at >= 0 and (text != ">" or at == len(opened) - 1) else opened
        elif text != "->":
            opened += text
    if "<" not in name[start:] or any(words in name for words in _NOT_FUNCTIONS):
        return 0
    return start
