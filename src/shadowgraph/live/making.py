"""Users that are being made: a program that is held before it begins waits for them, as compiling takes a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["in_the_making", "seconds_since_one_was_made"]


class _Making:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.last = float("-inf")


_users = _Making()


@contextmanager
def in_the_making() -> Iterator[None]:
    """While this holds, a user is being made."""
    with _users.lock:
        _users.count += 1
    try:
        yield
    finally:
        with _users.lock:
            _users.count -= 1
            _users.last = time.monotonic()


def seconds_since_one_was_made() -> float:
    """0 while one is being made."""
    with _users.lock:
        return 0.0 if _users.count else time.monotonic() - _users.last
