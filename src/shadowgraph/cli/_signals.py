"""Signals to `record` while it watches a program."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shadowgraph.ops.recording import Recording

__all__ = ["PassedSignals"]


class PassedSignals:
    """The terminal's Ctrl-C and Ctrl-\\ reach the program: the first is its business, the next one ends the recording.

    A process that was attached to is not meant by it (``first_is_ours``). SIGTERM and SIGHUP to the recorder end the
    recording; the program goes on. ``told_to_leave`` says afterwards that it was one of these.
    """

    def __init__(self, recording: Recording, *, first_is_ours: bool) -> None:
        self.told_to_leave = False
        self._recording = recording
        self._keys_left: int | None = 0 if first_is_ours else 1
        self._saved: dict[int, Any] = {}

    def __enter__(self) -> PassedSignals:
        handlers = dict.fromkeys((signal.SIGINT, signal.SIGQUIT), self._interrupted)
        handlers |= dict.fromkeys((signal.SIGTERM, signal.SIGHUP), self._ended)
        for number, handler in handlers.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                self._saved[number] = signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._saved.items():
            signal.signal(number, handler)

    def leave_keys_to_the_program(self) -> None:
        """From now on all of them are the program's own: there is no recording left to be ended."""
        self._keys_left = None

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._keys_left == 0:
            self._ended(number, frame)
        elif self._keys_left is not None:
            self._keys_left -= 1

    def _ended(self, number: int, frame: FrameType | None) -> None:
        self.told_to_leave = self._recording.stop = True
