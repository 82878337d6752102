"""A terminal that is drawn on and read key by key, and given back as it was, whatever ends or stops us."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import time
from types import FrameType, TracebackType
from typing import Any

from shadowgraph.view.terminal import Output

__all__ = ["Lines", "Screen"]

# Terminal sequences of xterm and all that follow it ("XTerm Control Sequences", CSI and DEC private modes).
_BEGIN = "\033[?1049h\033[?25l"  # the other screen, no cursor
_END = "\033[?25h\033[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\033[H", "\033[K", "\033[J"


class Lines(Output):
    """Collects lines instead of writing them."""

    def __init__(self, width: int, *, colour: bool) -> None:
        self.terminal = True
        self.width = width
        self.colour = colour
        self.lines: list[str] = []

    def line(self, text: str = "") -> None:
        """Keep a line, or several."""
        self.lines += text.split("\n")


class Screen:
    """Standard output and input as a screen and keys. Ctrl-C and Ctrl-Z go on being signals."""

    def __init__(self) -> None:
        self._output = Output()
        self._input = sys.stdin.fileno()
        self._saved: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._asked_to_suspend = False

    def __enter__(self) -> Screen:
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._former_wake = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._ask_to_suspend)
        self._handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda number, frame: None)  # wakes keys()
        try:
            self._take()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._give_back()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._former_wake)
            os.close(self._wake_read)
            os.close(self._wake_write)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        found = shutil.get_terminal_size()
        return max(found.columns, 20), max(found.lines, 5)

    def lines(self) -> Lines:
        """Something to write lines to that are as wide as the screen."""
        return Lines(self.size[0], colour=self._output.colour)

    def draw(self, lines: list[str], last: str) -> None:
        """Show as many lines as there is room for, and the last one at the bottom."""
        width, height = self.size
        shown = [*lines[: height - 1], *[""] * (height - 1 - len(lines)), last]
        self._write(_HOME + "\r\n".join(_cut(line, width) + _REST_OF_LINE for line in shown) + _REST_OF_SCREEN)

    def keys(self, seconds: float) -> str | None:
        """What is typed, waited for so long; "" if a signal has come, None if the time is over or input has ended."""
        ready = select.select([self._input, self._wake_read], [], [], max(seconds, 0))[0]
        if self._wake_read in ready:
            os.read(self._wake_read, 512)
            if self._asked_to_suspend:
                self._suspend()
            return ""
        if not ready:
            return None
        typed = os.read(self._input, 512)
        if not typed:
            time.sleep(max(seconds, 0))  # nobody types any more
            return None
        return typed.decode(errors="replace")

    def _take(self) -> None:
        self._saved = termios.tcgetattr(self._input)
        changed = termios.tcgetattr(self._input)
        changed[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._input, termios.TCSADRAIN, changed)
        self._write(_BEGIN)

    def _give_back(self) -> None:
        if self._saved is None:
            return
        saved, self._saved = self._saved, None
        try:
            self._write(_END)
        finally:
            termios.tcsetattr(self._input, termios.TCSADRAIN, saved)

    def _ask_to_suspend(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z. A handler comes in the middle of anything, of drawing too: keys() does what is to be done."""
        self._asked_to_suspend = True

    def _suspend(self) -> None:
        """The shell gets its terminal as it was; when we go on, it is ours again."""
        self._asked_to_suspend = False
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # we stand here until we are continued
        signal.signal(signal.SIGTSTP, self._ask_to_suspend)
        self._take()

    def _write(self, text: str) -> None:
        self._output.write(text.encode("utf-8", "surrogateescape"))
        self._output.flush()


def _cut(line: str, width: int) -> str:
    """The line without what has no room; a line with terminal sequences has been laid out already."""
    return line if "\033" in line else line[:width]
