"""The programs of these tests, built once."""

from __future__ import annotations

from functools import cache

from tests.support.manners import program

__all__ = ["built"]


@cache
def built(name: str) -> str:
    """One of tests/programs that runs threads, built."""
    return program(name, "o2", "-pthread")
