"""What a stack trace is made of, and whether it can be relied on (R22)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Frame", "FrameKind", "Lost", "StackTrace"]


class FrameKind(StrEnum):
    """What a frame stands for.

    FUNCTION  a function of the program, with a frame on the stack
    ENTERING  a function that is being called: the thread is still on its way to it, in a site or on the entry path
    TAIL      a function that ended in a tail call: its frame is gone, the shadow stack alone knows of it
    SIGNAL    the kernel's frame below a signal handler
    AGENT     code of the agent that carries out a call or a return of the program
    """

    FUNCTION = "function"
    ENTERING = "entering"
    TAIL = "tail"
    SIGNAL = "signal"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. ``pc`` is a place in the original code, be the thread in a thunk or the return address in a frame.

    ``module`` is the file's name without folders, ``function`` as the file spells it; None where nothing is known.
    """

    pc: int
    module: str | None
    function: str | None
    kind: FrameKind

    def __str__(self) -> str:
        where = f"{self.module}!{self.function or '?'}" if self.module else "?"
        suffix = "" if self.kind is FrameKind.FUNCTION else f" ({self.kind})"
        return f"{self.pc:#x} {where}{suffix}"


@dataclass(frozen=True, slots=True)
class StackTrace:
    """The frames of one thread, newest first.

    ``reliable``: the trace is complete, down to where the thread (or coroutine) began, and nothing speaks against any
    frame of it. Otherwise ``reason`` says in a sentence what does, and ``frames`` are those found up to there.
    """

    frames: tuple[Frame, ...]
    reliable: bool
    reason: str | None

    @property
    def program_frames(self) -> tuple[Frame, ...]:
        """The frames as they would be without the agent."""
        return tuple(frame for frame in self.frames if frame.kind is not FrameKind.AGENT)


class Lost(Exception):
    """The walk cannot go on, or must not be believed any more; the text is the reason, a sentence without its end."""
