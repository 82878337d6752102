"""Strings of which a name must contain one to match a regular expression: looking for these is much faster.

What is not understood of an expression is taken to ask for nothing, so at worst all names are looked at. The names are
to be without line ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

__all__ = ["EDGE", "literals_of"]

EDGE = "\0"  # before and behind each name where they are looked for: no name has it

# What matches at an edge only, where no name has a line end: $ matches before one as well.
_EDGES = (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING, codes.AT_END, codes.AT_END_STRING)

_MOST = 8  # more of them take longer to look for than they save
_Strings = frozenset[str]
# All strings that a part matches, where these are few, or sets of which each match contains one string each.
_Asked = tuple[_Strings | None, list[_Strings]]
_NOTHING: _Strings = frozenset([""])
_FLAGS = codes.SRE_FLAG_UNICODE | codes.SRE_FLAG_ASCII | codes.SRE_FLAG_DOTALL | codes.SRE_FLAG_VERBOSE


def literals_of(expression: str) -> tuple[list[_Strings], bool]:
    """Sets of strings; each match contains one of each set. None of them is all that is asked for.

    And whether that holds in small letters alone, and of names in ASCII: then case is ignored, and beyond ASCII there
    are letters that are equal to some of its own.
    """
    parsed = parser.parse(expression)
    flags, exact, asked = parsed.state.flags, *_of_sequence(list(parsed))
    if flags & ~_FLAGS & ~codes.SRE_FLAG_IGNORECASE:
        return [], False
    sets = _useful([exact, *asked])
    if not flags & codes.SRE_FLAG_IGNORECASE:
        return sets, False
    return [frozenset(map(str.lower, strings)) for strings in sets if all(map(str.isascii, strings))], True


def _of_sequence(items: Iterable[tuple[Any, Any]]) -> _Asked:
    asked: list[_Strings | None] = []
    current, is_whole = _NOTHING, True
    for code, argument in items:
        exact, inner = _of_item(code, argument)
        product = {_joined(one, other) for one in current for other in exact} if exact is not None else None
        if product is not None and len(product) <= _MOST:
            current = frozenset(product)
            continue
        is_whole = False
        asked += [current, *inner]
        current = _NOTHING if exact is None else exact
    return (current, []) if is_whole else (None, _useful([*asked, current]))


def _joined(one: str, other: str) -> str:
    """One behind the other; where both ask for an edge there, that is the same one."""
    return one + (other[1:] if one.endswith(EDGE) and other.startswith(EDGE) else other)


def _of_item(code: Any, argument: Any) -> _Asked:
    if code is codes.LITERAL:
        return frozenset([chr(argument)]), []
    if code is codes.IN:
        return _of_characters(argument), []
    if code is codes.AT:
        return frozenset([EDGE if argument in _EDGES else ""]), []
    if code is codes.SUBPATTERN:
        _, added, removed, inner = argument
        return (None, []) if (added | removed) & ~_FLAGS else _of_sequence(list(inner))
    if code is codes.ATOMIC_GROUP:
        return _of_sequence(list(argument))
    if code is codes.BRANCH:
        return _of_branches([_of_sequence(list(inner)) for inner in argument[1]])
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT) and argument[0] > 0:
        exact, asked = _of_sequence(list(argument[2]))
        return None, _useful([exact, *asked])
    return None, []


def _of_characters(items: Sequence[tuple[Any, Any]]) -> _Strings | None:
    if not all(code is codes.LITERAL for code, _ in items) or len(items) > _MOST:
        return None
    return frozenset(chr(argument) for _, argument in items)


def _of_branches(branches: list[_Asked]) -> _Asked:
    wholes = [whole for whole, _ in branches if whole is not None]
    if len(wholes) == len(branches):
        together = frozenset().union(*wholes)
        return (together, []) if len(together) <= _MOST else (None, [])
    longest = [
        max(_useful([whole, *asked]), key=lambda strings: min(map(len, strings)), default=_NOTHING)
        for whole, asked in branches
    ]
    return None, _useful([frozenset().union(*longest)])


def _useful(sets: Iterable[_Strings | None]) -> list[_Strings]:
    return [strings for strings in sets if strings and len(strings) <= _MOST and strings.isdisjoint(("", EDGE))]
