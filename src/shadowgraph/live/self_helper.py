"""The process that stops and changes another one for it: `python -m shadowgraph.live.self_helper SOCKET PID`.

A process cannot ptrace itself (ptrace(2): "EPERM"). What needs that, loading the agent, writing hooks and taking them
out, is done from here at its request; users and what they count are its own business, in the memory that it shares with
the agent. See :mod:`own_process`, which is the other end.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import traceback
from base64 import b64decode
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from shadowgraph.errors import ShadowgraphError, StartError
from shadowgraph.live.channel import Channel, Ended
from shadowgraph.live.outside import Outside

__all__ = ["main"]

_Answer = tuple[dict[str, Any], int | None]


def main(arguments: list[str]) -> None:
    """Serve until the process has ended or closes its end."""
    if os.fork():  # so that nobody's child is in the way of a process that waits for its own
        os._exit(0)
    channel = Channel(socket.socket(fileno=int(arguments[0])))
    pid = int(arguments[1])
    try:
        channel.send({"pid": os.getpid()})
        life = os.pidfd_open(pid)  # children that it forks have the other end of the socket, too
        serve = _Service(pid)
        while life not in select.select([channel.fileno(), life], [], [])[0]:
            request, _ = channel.receive()
            answer, file = _answered(serve, request)
            channel.send(answer, file)
    except (Ended, ProcessLookupError):
        pass


def _answered(serve: _Service, request: dict[str, Any]) -> _Answer:
    try:
        action: Callable[..., _Answer] = getattr(serve, request.pop("do"))
        return action(**request)
    except ShadowgraphError as error:
        kind = "StartError" if isinstance(error, StartError) else "UsageError"
        return {"refused": kind, "text": str(error)}, None
    except Exception:
        return {"failed": traceback.format_exc()}, None


class _Service:
    """What can be asked for. The process itself sees to it that one controller at a time is at work."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._target: Any = None
        self._recordings: dict[int, tuple[Outside, Any]] = {}  # with the agent as it found it

    def _opened(self) -> Any:
        from shadowgraph.live.starting import attach

        if self._target is None:
            self._target = attach(self._pid)
            self._target._hooking.can_follow = False
        return self._target

    def vet(self) -> _Answer:
        """Whether the process can be attached to: an error if not."""
        self._opened()
        return {}, None

    def hook(self, functions: list[str]) -> _Answer:
        """Hook functions; their numbers and labels, and the memory that the agent shares."""
        from shadowgraph.live.numbers import wanted
        from shadowgraph.ops.selection import LibraryCalls, Selection, function_rule

        rules = [function_rule(pattern, include=True) for pattern in functions]
        target = self._opened()
        selection = Selection(rules, libcalls=LibraryCalls.DIRECT)
        hooking = target._hooking
        chosen = target._worker.do(lambda: hooking.hook_running(selection, in_use=False))
        labels, callers = wanted(chosen.choices.values())
        agent = hooking.agent
        answer = {"labels": list(labels.items()), "callers": sorted(callers), "notes": self._take_notes()}
        answer |= {"refusals": hooking.refusals.named(), "executable": hooking.refusals.executable}
        return {**answer, "inode": agent.arena.inode, "zones": agent.zones}, agent.arena.file

    def exchange(self, **fields: Any) -> _Answer:
        """Exchange the functions of a user at one moment."""
        from shadowgraph.live.exchanging import Switch

        target = self._opened()
        readings = target._worker.do(lambda: target._hooking.exchange(Switch.from_lists(**fields)))
        return {"readings": [column.tolist() for column in readings]}, None

    def load(self, content: str, **fields: Any) -> _Answer:
        """Bring the code of handlers in."""
        from shadowgraph.ops.handler_object import HandlerObject

        handlers = HandlerObject(content=b64decode(content), **{**fields, "obstacles": tuple(fields["obstacles"])})
        user = SimpleNamespace(handlers=handlers, loaded=None)
        target = self._opened()
        target._worker.do(lambda: target._hooking.bring_in(user))
        return dict(vars(cast(Any, user.loaded))), None

    def unload(self, **fields: Any) -> _Answer:
        """Take it out again."""
        target = self._opened()
        user = SimpleNamespace(loaded=SimpleNamespace(**fields))
        target._worker.do(lambda: target._hooking.unload(user))
        return {}, None

    def record(self, options: dict[str, Any]) -> _Answer:
        """Begin to record; by which process, in which slot, and the memory that the agent shares."""
        from shadowgraph.ops.joining import join
        from shadowgraph.target.memory import Memory

        recording = Outside(self._pid, options)
        if "begun" not in recording.begun:
            return recording.begun, None
        memory = Memory(self._pid)
        try:
            agent = join(self._pid, memory)
        finally:
            memory.close()
        self._recordings[recording.pid] = recording, agent
        if agent is None or not recording.begun["begun"]:  # it has been taken off already
            return self.end_recording(recording.pid)
        answer = {"recording": recording.pid, "slot": recording.begun["begun"][0], "notes": []}
        return {**answer, "inode": agent.arena.inode, "zones": agent.zones}, agent.arena.file

    def end_recording(self, recording: int) -> _Answer:
        """End it, with the trace written; what it has lost."""
        return self._recordings.pop(recording)[0].end(), None

    def leave(self) -> _Answer:
        """Take all hooks out if nobody uses them any more."""
        target = self._opened()
        target._worker.do(target._hooking.leave)
        return {"notes": self._take_notes()}, None

    def _take_notes(self) -> list[str]:
        hooking = self._opened()._hooking
        notes = [*hooking.notes, *hooking.unmet.sentences(())]
        hooking.notes.clear()
        return notes


if __name__ == "__main__":
    main(sys.argv[1:])
