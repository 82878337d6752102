"""Bytes that belong to nobody: what linkers and assemblers put between functions."""

from __future__ import annotations

__all__ = ["padding_size"]

# The nops that assemblers pad code with (SDM vol. 2, NOP; GNU as, .p2align on x86), behind any number of 66 and 2e.
_NOPS = (
    b"\x0f\x1f\x80\0\0\0\0",
    b"\x0f\x1f\x84\0\0\0\0\0",
    b"\x0f\x1f\x44\0\0",
    b"\x0f\x1f\x40\0",
    b"\x0f\x1f\0",
    b"\x90",
)
_INT3 = b"\xcc"
# Linkers align functions to 16 bytes unless told otherwise; a longer run of zeros behind code is data.
_ALIGNMENT = 16


def padding_size(gap: bytes) -> int:
    """How many bytes from the start of ``gap`` on are padding: int3, nops, or zeros if they fill a gap under 16 bytes.

    ``gap`` must end where the next owner's bytes begin.
    """
    if gap and not any(gap):
        return len(gap) if len(gap) < _ALIGNMENT else 0
    position = 0
    while position < len(gap):
        size = _nop_size(gap[position : position + 16])
        if size == 0:
            break
        position += size
    return position


def _nop_size(code: bytes) -> int:
    if code.startswith(_INT3):
        return 1
    prefixes = len(code) - len(code.lstrip(b"\x66\x2e"))
    rest = code[prefixes:]
    return next((prefixes + len(nop) for nop in _NOPS if rest.startswith(nop)), 0)
