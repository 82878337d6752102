"""A command on a terminal of its own, as a user at a keyboard runs it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.support.build import scratch_folder
from tests.support.manners import usual_environment

__all__ = ["CATCHING", "CTRL_C", "OnTerminal"]

CTRL_C = b"\x03"
# A program that says of three Ctrl-C that it has caught them, and ends with status 7. A shell's `trap` may miss one
# that comes between its look for signals and its waiting.
CATCHING = [
    sys.executable,
    "-c",
    "import signal; keys = [signal.SIGINT]; signal.pthread_sigmask(signal.SIG_BLOCK, keys)\n"
    "print('began', flush=True)\n"
    "for _ in range(3): signal.sigwait(keys); print('caught', flush=True)\n"
    "raise SystemExit(7)",
]
_PATIENCE = 60


class OnTerminal:
    """A command that leads a session with a terminal; a context manager that kills it if it still runs."""

    def __init__(self, command: Sequence[str], folder: Path | None = None) -> None:
        environment, program = usual_environment(), shutil.which(command[0]) or command[0]
        self.shown = ""
        self._status: int | None = None
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            try:
                for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
                    signal.signal(number, signal.SIG_DFL)
                os.closerange(3, 4096)
                os.chdir(folder or scratch_folder())
                os.execve(program, list(command), environment)
            finally:
                os._exit(127)

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._status is None:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._terminal)

    def press(self, keys: bytes) -> None:
        """Type something."""
        os.write(self._terminal, keys)

    def wait_for(self, text: str) -> None:
        """Read until the text has been shown, after what was waited for before."""
        seen = ""
        while text not in seen:
            part = self._read()
            assert part, f"{text!r} was not shown: {self.shown!r}"
            seen += part

    def wait_for_all(self, *texts: str) -> None:
        """Read until all of these have been shown, in whatever order, since the beginning."""
        while any(text not in self.shown for text in texts):
            assert self._read(), f"{texts!r} were not shown: {self.shown!r}"

    def status(self) -> int:
        """Wait for the end of the command; its status as a shell sees it. All that it showed is in ``shown``."""
        while self._read():
            pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._status = code if code >= 0 else 128 - code
        return self._status

    def _read(self) -> str:
        """What is shown next; empty when nobody has the terminal open any more."""
        assert select.select([self._terminal], [], [], _PATIENCE)[0], f"nothing more was shown: {self.shown!r}"
        try:
            part = os.read(self._terminal, 1 << 16).decode(errors="replace")
        except OSError:  # EIO
            return ""
        self.shown += part
        return part
