"""The process that this runs in as a target: a Python program, a notebook, traces its own libraries.

Everything is as with any other process, but that stopping it and writing to its code is done by a helper process
(:mod:`self_helper`). It stops the thread that waits for it as any other; the wait goes on afterwards, with the GIL
released. While it is at work no thread holds the registry's lock, for it may want that with all threads stopped.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import subprocess
import sys
import threading
import weakref
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from shadowgraph.agent.arena import Arena
from shadowgraph.agent.inject import Agent, find_agent
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import StartError, UsageError
from shadowgraph.image import Reason
from shadowgraph.live.channel import Channel, Ended, answer_of
from shadowgraph.live.exchanging import Switch
from shadowgraph.live.found import Found
from shadowgraph.live.handlers import Ops
from shadowgraph.live.hooking import Hooking
from shadowgraph.live.recorder import Recorder
from shadowgraph.live.shared_cells import Readings
from shadowgraph.live.target import Target
from shadowgraph.live.user import Place, User
from shadowgraph.ops.handler_memory import LoadedHandlers
from shadowgraph.ops.refusals import Refused
from shadowgraph.ops.selection import Selection

__all__ = ["OwnProcess", "attach_self"]

_Ask = Callable[..., tuple[dict[str, Any], int | None]]

_SET_PTRACER = 0x59616D61  # PR_SET_PTRACER of prctl(2): Yama lets this process trace us
_PACKAGES = Path(__file__).resolve().parents[2]
_TARGETS: weakref.WeakSet[OwnProcess] = weakref.WeakSet()


def attach_self() -> OwnProcess:
    """Trace functions of this very process: its extension modules, their libraries, the interpreter."""
    return OwnProcess()


class OwnProcess(Target):
    """This process, with the users that it has registered on itself. Made by :func:`attach_self`.

    Everything is taken out by :meth:`close`, at the end of a ``with``, or when the interpreter ends. A forked child is
    counted with its parent and cannot register anybody here; it may call :func:`attach_self` for itself.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._recordings: dict[Recorder, int] = {}  # by which process each is done
        self._channel, self._helper = _start_helper()
        _allow_tracing(self._helper)
        try:
            self._ask("vet")
            super().__init__(os.getpid())
        except BaseException:
            self._end_helper()
            raise
        _TARGETS.add(self)
        atexit.register(self.close)

    def register(self, user: Any) -> Any:
        """Put a user on its functions: from now on it sees their calls. Returns it."""
        self._only_here()
        if isinstance(user, Recorder):
            self._record(user)
            return user
        return super().register(user)

    def replace_functions(self, user: User, functions: Sequence[str]) -> None:
        """Exchange the functions of a user, for all of them at one moment."""
        self._only_here()
        if isinstance(user, Recorder):
            raise UsageError(f"{user.name}: is done by another process; register another one with these functions")
        super().replace_functions(user, functions)

    def unregister(self, user: User) -> None:
        """Take a user off; what it has counted stays readable."""
        if isinstance(user, Recorder) and user in self._recordings:
            self._only_here()
            self._end_recording(user)
        if user in self._users:
            self._only_here()
            super().unregister(user)

    def wait(self, timeout: float | None = None) -> int | None:
        """Nobody can wait for his own end."""
        raise UsageError("this process cannot wait for itself")

    def close(self) -> None:
        """Take all users off and leave the process as it was."""
        if self._closed or os.getpid() != self.pid:
            return
        try:
            for user in list(self._recordings):
                self._end_recording(user)
            super().close()
        finally:
            self._end_helper()
            self._hooking.agent = self._hooking.registry = None  # and with them the file of the shared memory
            atexit.unregister(self.close)

    # --- recordings: by a process of their own, for threads that wait for room hold the lock of the interpreter ---

    def _record(self, user: Recorder) -> None:
        if self._closed:
            raise UsageError("this target has been closed")
        if user.is_registered:
            raise UsageError(f"{user.name}: is registered already")
        self.unregister(user)  # if somebody else has taken it off
        options = {"functions": user.functions, "when": user.when, "on_full": user.on_full, "buffer": user.buffer}
        options |= {"path": str(user.path.absolute()), "force": user.force, "name": user.name}
        answer, file = self._ask_for_file("record", options=options)
        if "recording" not in answer:
            raise StartError(f"{user.name}: the recording has ended as soon as it had begun")
        hooking = self._hooking
        assert isinstance(hooking, _HookedByHelper)
        hooking.adopt(answer, file)
        registry = hooking.registry
        assert registry is not None
        user.done_outside(Place(self, registry, int(answer["slot"]), Found.named({}, [])))
        self._recordings[user] = int(answer["recording"])

    def _end_recording(self, user: Recorder) -> None:
        recording = self._recordings.pop(user)
        user.give_up()
        said = self._ask("end_recording", recording=recording)
        user.has_written(said["losses"])
        self._hooking.notes += [note for note in said["notes"] if note not in self._hooking.notes]

    def _only_here(self) -> None:
        if os.getpid() != self.pid:
            here = f"process {os.getpid()}, which was forked from it, calls attach_self() for itself"
            raise UsageError(f"this target is process {self.pid}; {here}")

    # --- what the helper does ---

    def _make_hooking(self, pid: int, follow: bool) -> Hooking:
        return _HookedByHelper(pid, self._ask_for_file, self._lock)

    def _vet(self, pid: int) -> None:
        """The helper has found out."""

    def _ask(self, what: str, **fields: Any) -> dict[str, Any]:
        return self._ask_for_file(what, **fields)[0]

    def _ask_for_file(self, what: str, **fields: Any) -> tuple[dict[str, Any], int | None]:
        with self._lock:
            try:
                self._channel.send({"do": what, **fields})
                content, file = self._channel.receive()
            except Ended:
                raise StartError(
                    f"the helper process {self._helper} has ended, so this process cannot be changed"
                ) from None
        return answer_of(content), file

    def _end_helper(self) -> None:
        self._channel.close()
        _allow_tracing(0)


class _HookedByHelper(Hooking):
    """What stops the process, or changes its code, is asked of the helper."""

    can_follow = False  # a thread that loads a library would wait for itself

    def __init__(self, pid: int, ask: _Ask, lock: threading.RLock) -> None:
        super().__init__(pid)
        self._ask = ask
        self._lock = lock

    def find(self, selection: Selection, *, in_use: bool, must: bool = True) -> Found:
        """The functions of a selection, hooked."""
        answer, file = self._ask("hook", functions=[rule.text for rule in selection.rules])
        self.adopt(answer, file)
        refused = [Refused(path, row, Reason(reason), name) for path, row, reason, name in answer["refusals"]]
        self.refusals.renew(answer["executable"], refused)
        return Found.named({int(number): label for number, label in answer["labels"]}, answer["callers"])

    def adopt(self, answer: dict[str, Any], file: int | None) -> None:
        """The process has the agent that the helper tells of, if it has not had it before."""
        try:
            if self.agent is None or self.agent.arena.inode != answer["inode"]:
                module = find_agent(self.pid)
                assert module is not None and file is not None
                # Opened anew: a lock (flock(2)) belongs to an opening, and the helper has one of its own.
                own = os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
                self.use(Agent(module, Arena(own), answer["zones"]["enter"], answer["zones"]))
        finally:
            if file is not None:
                os.close(file)
        self.notes += [note for note in answer["notes"] if note not in self.notes]

    def use(self, agent: Agent) -> None:
        """The process has this agent."""
        self.agent = agent
        self.registry = _OwnRegistry(agent, self._lock)

    def exchange(self, wanted: Switch) -> Readings:
        """Exchange the functions of a user at one moment, for which the process may have to stand still."""
        answer, _ = self._ask("exchange", **wanted.in_lists())
        return Readings(*(np.array(column, np.int64) for column in answer["readings"]))

    def bring_in(self, user: Ops) -> None:
        """Bring the code of a user's handlers into the process."""
        made = user.handlers
        fields = {"name": made.name, "entry": made.entry, "exit": made.exit, "obstacles": made.obstacles}
        found, _ = self._ask("load", content=b64encode(made.content).decode(), **fields)
        user.loaded = cast(LoadedHandlers, SimpleNamespace(**found))

    def unload(self, user: Ops) -> None:
        """Take code out that no thread can be in."""
        loaded, user.loaded = user.loaded, None
        if loaded is not None:
            self._ask("unload", **vars(loaded))

    def leave(self) -> None:
        """Take all hooks out if nobody uses them any more."""
        if self.agent is not None:
            self.notes += self._ask("leave")[0]["notes"]


class _OwnRegistry(Registry):
    """Its lock is not taken while the helper is at work."""

    def __init__(self, agent: Agent, lock: threading.RLock) -> None:
        super().__init__(agent.arena, agent.zones)
        self._while_no_helper = lock

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who changes it."""
        with self._while_no_helper, super().locked():
            yield


def _start_helper() -> tuple[Channel, int]:
    """Start it, with the same interpreter and the same modules; it is nobody's child."""
    if not sys.executable:
        raise StartError("this interpreter does not know its own program (sys.executable), so no helper can be started")
    ours, other = socket.socketpair()
    path = os.pathsep.join(dict.fromkeys([str(_PACKAGES), *(name for name in sys.path if name)]))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "shadowgraph.live.self_helper", str(other.fileno()), str(os.getpid())]
    nowhere = subprocess.DEVNULL
    try:
        with other:
            subprocess.run(
                command,
                check=True,
                env=environment,
                stdin=nowhere,
                stdout=nowhere,
                stderr=nowhere,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        channel = Channel(ours)
        return channel, int(channel.receive()[0]["pid"])
    except (OSError, subprocess.CalledProcessError, Ended) as error:
        ours.close()
        raise StartError(f"{sys.executable}: the helper process could not be started: {error}") from None


def _allow_tracing(pid: int) -> None:
    """By this process alone, 0 for none. Where there is no Yama it refuses, and nothing is needed."""
    ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def _after_fork() -> None:
    """A child has no business with its parent's helper."""
    for target in list(_TARGETS):
        target._channel.close()


os.register_at_fork(after_in_child=_after_fork)
