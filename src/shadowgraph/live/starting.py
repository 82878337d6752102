"""The two ways to a target: a program that is started, and a process that runs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from shadowgraph.errors import UsageError
from shadowgraph.live.target import Target

__all__ = ["attach", "launch"]


def launch(command: Sequence[str], *, follow: bool = False) -> Target:
    """Start a program. It stands at its entry while users are being registered.

    It begins a second after the last register(), not before the first one, or at once with resume() or wait().
    ``follow``: users go along with it, and with its children, into programs that they execute.
    """
    if isinstance(command, str) or not command:
        raise UsageError("launch() takes a list: the program and its arguments")
    return Target(None, [os.fspath(word) for word in command], follow=follow)


def attach(pid: int, *, follow: bool = False) -> Target:
    """Attach to a process that runs. ``follow``: into programs that it executes, as with :func:`launch`."""
    return Target(pid, follow=follow)
