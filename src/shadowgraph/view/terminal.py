"""Where the text goes: its width, whether it may have colour, a reader that leaves early, a file instead."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn

from shadowgraph.errors import UsageError

__all__ = ["NobodyListens", "Output", "progress_line"]

# What is done sooner needs no progress bar.
_PATIENCE_SECONDS = 0.7


_OPEN_ALREADY = re.compile(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/(\d{1,9})", re.ASCII)
_NUMBERS = {"stdout": 1, "stderr": 2}


class NobodyListens(SystemExit):
    """Whoever read the standard output has closed it."""


class Output:
    """Standard output, or a file. ``width`` is the terminal's, None for a file or a pipe, where nothing may be cut."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        if path is None and sys.stdout is None:  # closed when we were started
            raise UsageError("standard output is closed, so there is nowhere to print to")
        self._stream: IO[Any] = sys.stdout if path is None else _opened(path)
        self.terminal = self._stream.isatty()
        self.width = shutil.get_terminal_size().columns if self.terminal else None
        self.colour = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def line(self, text: str = "") -> None:
        """Write a line."""
        self.write((text + "\n").encode("utf-8", "surrogateescape"))

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes. A reader that has seen enough (``| head``) ends the program in silence, as is custom."""
        try:
            if self._path is not None:
                self._stream.write(data)
                return
            stream = getattr(self._stream, "buffer", None)
            if stream is None:
                self._stream.write(bytes(data).decode("utf-8", "replace"))
            else:
                stream.write(data)
        except OSError as error:
            self._leave(error)

    def flush(self) -> None:
        """Hand over what is buffered."""
        try:
            self._stream.flush()
        except OSError as error:
            self._leave(error)

    def bold(self, text: str) -> str:
        """The text, in bold where colour is allowed."""
        return f"\033[1m{text}\033[0m" if self.colour else text

    def _leave(self, error: OSError) -> NoReturn:
        """Nobody listens any more, or the disk is full: let the interpreter's last flush go nowhere."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        if isinstance(error, BrokenPipeError):
            raise NobodyListens(0)
        where = "standard output" if self._path is None else self._path
        raise UsageError(f"{where} cannot be written to: {(error.strerror or str(error)).lower()}") from None


def _opened(path: Path) -> IO[bytes]:
    """The file, empty. It is not inherited by a program that is started.

    What is open already goes on where it is: opening it by such a name would empty a file, and fails for a socket.
    """
    number = _OPEN_ALREADY.fullmatch(os.fspath(path))
    try:
        if number:
            return os.fdopen(os.dup(_NUMBERS.get(number[1]) or int(number[2])), "wb")
        return path.open("wb")
    except OSError as error:
        raise UsageError(f"{path} cannot be written to: {(error.strerror or str(error)).lower()}") from None


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
