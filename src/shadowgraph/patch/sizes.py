"""How many bytes the jumps take that are written into code."""

from __future__ import annotations

__all__ = ["FIELD_SIZE", "JUMP_SIZE", "SHORT_JUMP_SIZE"]

JUMP_SIZE = 5
SHORT_JUMP_SIZE = 2
# A jump with 32 bits ends with so many bytes of displacement.
FIELD_SIZE = 4
