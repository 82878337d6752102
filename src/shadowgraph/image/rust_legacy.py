"""Rust's older mangling: a C++ nested name whose last part is a hash, with ``$…$`` escapes in the others.

It is described only by rustc itself (compiler/rustc_symbol_mangling/src/legacy.rs).
"""

from __future__ import annotations

import re

__all__ = ["demangle_rust_legacy"]

_ESCAPE = re.compile(r"\$(?:(SP|BP|RF|LT|GT|LP|RP|C)|u([0-9a-f]{1,6}))\$")
_LETTERS = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}


def demangle_rust_legacy(name: str) -> str:
    """The path without its hash; "" if the name is not of this kind."""
    if "17h" not in name:
        return ""
    end = name.rfind("17h")
    shape = re.fullmatch(r"17h[0-9a-f]{16}E(\..*)?", name[end:])
    parts = _parts(name[3:end]) if shape and name.startswith("_ZN") else []
    return "::".join(_readable(part) for part in parts)


def _parts(path: str) -> list[str]:
    """The length-prefixed identifiers of a path; none if it does not come out even."""
    parts, at = [], 0
    while at < len(path):
        digits = re.compile(r"[1-9]\d{0,4}").match(path, at)
        if digits is None:
            return []
        at = digits.end() + int(digits[0])
        if at > len(path):
            return []
        parts.append(path[digits.end() : at])
    return parts


def _readable(part: str) -> str:
    if part.startswith("_$"):
        part = part[1:]
    return _ESCAPE.sub(_letter, part.replace("..", "::"))


def _letter(escape: re.Match[str]) -> str:
    if escape[1]:
        return _LETTERS[escape[1]]
    code = int(escape[2], 16)
    return chr(code) if 0x20 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else escape[0]
