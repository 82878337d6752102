"""Keeping what we open off the numbers of the standard files."""

from __future__ import annotations

import os

__all__ = ["occupy_standard_files"]


def occupy_standard_files() -> None:
    """Open what is closed of files 0 to 2, or files of ours would get these numbers, and what goes to stderr with them.

    The program does not inherit it.
    """
    while True:
        number = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        if number > 2:
            os.close(number)
            return
