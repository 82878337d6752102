"""What assemblers and linkers put between functions."""

from __future__ import annotations

import re

__all__ = ["is_padding"]

# int3, nop, and the multi-byte nops of the processor manuals (NOP r/m16, r/m32) with any number of prefixes.
_FORMS = rb"\x00", rb"\x40.", rb"\x44\x00.", rb"\x80.{4}", rb"\x84\x00.{4}"
_PADDING = re.compile(rb"(?:\xcc|[\x66\x2e]*(?:\x90|\x0f\x1f(?:" + rb"|".join(_FORMS) + rb")))*", re.DOTALL)


def is_padding(code: bytes) -> bool:
    """Whether these bytes are whole nops (or int3) and nothing else."""
    return _PADDING.fullmatch(code) is not None
