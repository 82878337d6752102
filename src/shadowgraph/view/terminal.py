"""Where the text goes: its width, whether it may have colour, and a reader that leaves early."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from shadowgraph.errors import UsageError

__all__ = ["Output", "progress_line"]

# What is done sooner needs no progress bar.
_PATIENCE_SECONDS = 0.7


class Output:
    """Standard output. ``width`` is the terminal's, None for a file or a pipe, where nothing may be cut."""

    def __init__(self) -> None:
        if sys.stdout is None:  # closed when we were started
            raise UsageError("standard output is closed, so there is nowhere to print to")
        self.terminal = sys.stdout.isatty()
        self.width = shutil.get_terminal_size().columns if self.terminal else None
        self.colour = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def line(self, text: str = "") -> None:
        """Write a line."""
        self.write((text + "\n").encode("utf-8", "surrogateescape"))

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes. A reader that has seen enough (``| head``) ends the program in silence, as is custom."""
        try:
            stream = getattr(sys.stdout, "buffer", None)
            if stream is None:
                sys.stdout.write(bytes(data).decode("utf-8", "replace"))
            else:
                stream.write(data)
        except OSError as error:
            self._leave(error)

    def flush(self) -> None:
        """Hand over what is buffered."""
        try:
            sys.stdout.flush()
        except OSError as error:
            self._leave(error)

    def bold(self, text: str) -> str:
        """The text, in bold where colour is allowed."""
        return f"\033[1m{text}\033[0m" if self.colour else text

    def _leave(self, error: OSError) -> NoReturn:
        """Nobody listens any more, or the disk is full: let the interpreter's last flush go nowhere."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            raise SystemExit(0)
        raise UsageError(f"standard output cannot be written to: {(error.strerror or str(error)).lower()}") from None


def progress_line(doing: str) -> Callable[[int, int], None] | None:
    """A callback that shows how far a long pass is, on a terminal's stderr; None where there is none to show it."""
    if not (sys.stderr.isatty() and sys.stdout.isatty()):
        return None
    shown: int | None = None
    patience = time.monotonic() + _PATIENCE_SECONDS

    def show(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // total if total else 100
        if done >= total:
            sys.stderr.write("\r\033[K" if shown is not None else "")
        elif percent != shown and time.monotonic() > patience:
            shown = percent
            sys.stderr.write(f"\r{doing} {percent} %")
        sys.stderr.flush()

    return show
