"""A running program and the users that this controller has on it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from shadowgraph.errors import ShadowgraphError, StartError, UsageError
from shadowgraph.live.chosen_before import Found
from shadowgraph.live.exchanging import Switch, enrol, make_room
from shadowgraph.live.following import Bell, asked
from shadowgraph.live.handlers import Ops
from shadowgraph.live.hooking import Hooking
from shadowgraph.live.making import seconds_since_one_was_made
from shadowgraph.live.recorder import Recorder
from shadowgraph.live.rows import user_row
from shadowgraph.live.user import Place, User
from shadowgraph.live.worker import Worker
from shadowgraph.ops.processes import alone_with, end_told, runs, vet_alone
from shadowgraph.ops.reaping import reap
from shadowgraph.ops.recorder_slot import claim_place, end_recorder, give_back_recorder_slot
from shadowgraph.ops.remarks import largest_library
from shadowgraph.ops.selection import Selection
from shadowgraph.target import launch as launching
from shadowgraph.target import ptrace
from shadowgraph.target.vet import vet_program

__all__ = ["Target"]

_User = TypeVar("_User", bound=User)

# A program that was launched stands at its entry until no user has been registered for so long.
_HOLD_SECONDS = 1.0
_LOOK_SECONDS = 0.02
_REAP_SECONDS = 1.0


class Target:
    """A process with the users that this controller has registered. Made by launch() and attach() (starting.py).

    As a context it leaves the process behind as it was, with its own users taken off; a program that it has launched
    is waited for.
    """

    def __init__(self, pid: int | None = None, command: Sequence[str] = ()) -> None:
        self._users: list[User] = []
        self._held_until: float | None = None
        self._status: int | None = None
        self._launched = pid is None
        self._closed = False
        self._reaped = 0.0
        self._bell: Bell | None = None
        self._is_looking = False
        self._hooking = self._make_hooking(pid or 0)
        self._worker = Worker(self._idle, _LOOK_SECONDS)
        try:
            self.pid = self._hooking.pid = self._worker.do(lambda: self._launch(command)) if pid is None else pid
            if pid is not None:
                self._worker.do(lambda: self._vet(pid))
        except BaseException:
            self._worker.close()
            raise

    def __enter__(self) -> Target:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._launched and kind is None:
            self._wait_for_end()

    # --- users ---

    def register(self, user: _User) -> _User:
        """Put a user on its functions: from now on it sees their calls. Returns it."""
        if self._closed:
            raise UsageError("this target has been closed")
        if user.is_registered:
            raise UsageError(f"{user.name}: is registered already")
        self.unregister(user)  # if somebody else has taken it off
        self._worker.do(lambda: self._register(user))
        return user

    def unregister(self, user: User) -> None:
        """Take a user off; what it has counted stays readable."""
        if user in self._users:
            self._worker.do(lambda: self._unregister(user))

    def replace_functions(self, user: User, functions: Sequence[str]) -> None:
        """Exchange the functions of a user, for all of them at one moment: see :meth:`User.replace_functions`."""
        selection = user.selection_of(functions)
        if user not in self._users:
            raise UsageError(f"{user.name}: is not registered here; target.register() does that")
        self._worker.do(lambda: self._replace(user, selection))
        user.functions = tuple(functions)

    @property
    def notes(self) -> list[str]:
        """What there is to say besides, in sentences."""
        return self._hooking.notes

    @property
    def users(self) -> list[dict[str, Any]]:
        """All users of the process, those of other controllers included, in the order of their registration."""
        registry = self._hooking.registry
        if registry is None:
            return []
        rows = [user_row(registry, slot) for slot in registry.slots()]
        if self._worker.do(self._has_executed):
            rows = [{**row, "state": "exec'ed"} for row in rows]
        return rows

    @property
    def largest_library(self) -> str:
        """The name of the library with the most code, of those that the process had when a user was registered."""
        try:
            return largest_library(self._hooking.known_modules, [os.readlink(f"/proc/{self.pid}/exe")])
        except OSError:
            return ""  # it has ended

    # --- the program ---

    def resume(self) -> None:
        """Let a program that was launched begin now, rather than a moment after the last register()."""
        self._worker.do(self._let_go)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the process to end. Returns its exit status (128 + n for a signal), None if the time is over.

        The status of a process that was attached to is its parent's: 0 then.
        """
        if not self._closed:
            self.resume()
        return self._wait_for_end(timeout)

    def close(self) -> None:
        """Take all users of this controller off and leave the process as it was."""
        if self._closed:
            return
        self._closed = True
        try:
            for user in list(self._users):
                self._worker.do(lambda user=user: self._unregister(user))  # type: ignore[misc]
            self._worker.do(self._let_go)
            self._worker.do(self._look)
            self._worker.do(self._has_executed)
            if self._bell is not None:
                self._bell.close()
            self._worker.do(self._hooking.leave)
        finally:
            self._worker.close()

    def _wait_for_end(self, timeout: float | None = None) -> int | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.has_ended():
            if deadline is not None and time.monotonic() > deadline:
                return None
            time.sleep(_LOOK_SECONDS)
        if self._status is None:
            return 0
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        if self._launched and self._status is None:
            try:
                got, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                return True
            if got == self.pid and not os.WIFSTOPPED(status):
                self._status = status
        return self._status is not None if self._launched else not runs(self.pid)

    # --- in the worker's thread ---

    def _make_hooking(self, pid: int) -> Hooking:
        return Hooking(pid)

    def _launch(self, command: Sequence[str]) -> int:
        path = launching.find_program(command[0])
        vet_program(path)
        pid = launching.launch(path, list(command))
        try:
            launching.run_to_entry(pid)
        except BaseException:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
            raise
        self._hold()
        return pid

    def _vet(self, pid: int) -> None:
        vet_alone(pid)

    def _has_executed(self) -> bool:
        """Whether the process runs another program by now, which is said."""
        if not self._hooking.has_executed():
            return False
        with suppress(OSError):
            program = os.readlink(f"/proc/{self.pid}/exe")
            note = (
                f"process {self.pid} has executed another program, {program}: what was counted until then stays; "
                "a user that is to see calls of the new one is registered again"
            )
            self.notes.extend([note] if note not in self.notes else [])
        return True

    def _idle(self) -> None:
        now = time.monotonic()
        # Nobody launches a program to leave it alone: before there is a user there is more to come.
        is_due = self._held_until is not None and now > self._held_until and bool(self._users)
        if is_due and seconds_since_one_was_made() > _HOLD_SECONDS:
            self._let_go()
        registry = self._hooking.registry
        if registry is not None and now - self._reaped > _REAP_SECONDS:
            self._reaped = now
            self._has_executed()
            with registry.locked():
                reap(registry, self.pid)

    def _hold(self) -> None:
        self._held_until = time.monotonic() + _HOLD_SECONDS
        self._hooking.is_held = True

    def _let_go(self) -> None:
        if self._held_until is not None:
            self._held_until = None
            self._hooking.is_held = False
            ptrace.detach(self.pid)

    def _register(self, user: User) -> None:
        if self._held_until is not None:
            self._add(user, self._find(user, user.selection))
            self._hold()
            return
        with alone_with(self.pid), end_told(self.pid):
            self._add(user, self._find(user, user.selection))

    def _find(self, user: User, selection: Selection) -> Found:
        in_use = any(other.is_registered for other in self._users)
        return user.fitted(self._hooking.find(selection, in_use=in_use))

    def _add(self, user: User, found: Found) -> None:
        registry = self._hooking.registry
        assert registry is not None
        if isinstance(user, Recorder):
            self._prepare(user, found)
        if isinstance(user, Ops):
            self._hooking.bring_in(user)
        try:
            slot = enrol(registry, user, found)
        except BaseException:
            if isinstance(user, Recorder):
                user.give_back()
            if isinstance(user, Ops):
                self._hooking.unload(user)  # nobody has been given its handlers
            raise
        user.registered(Place(self, registry, slot, found.labels))
        self._users.append(user)
        self._listen(found)

    def _listen(self, found: Found) -> None:
        """Hear of libraries that are loaded from now on."""
        registry = self._hooking.registry
        if not found.follows or not self._hooking.can_follow or registry is None:
            return
        if self._bell is not None and self._bell.registry is not registry:
            self._bell.close()
            self._bell = None
        if self._bell is None:
            self._bell = Bell(registry, os.getpid(), self._look_later)

    def _look_later(self) -> None:
        """The agent has rung."""
        if not self._is_looking:
            self._is_looking = True
            self._worker.post(self._look)

    def _look(self) -> None:
        """Hook what is wanted of libraries that threads have loaded, and let them go on."""
        self._is_looking = False
        bell = self._bell
        if bell is None:
            return
        arena = bell.registry.arena
        followers = [user for user in self._users if user.is_registered and user.place.registry is bell.registry]
        slots = [user.place.slot for user in followers]
        for event in asked(bell.registry, slots):
            if int(event["pid"]) == self.pid:
                for user in followers:
                    self._follow(user)
            for slot in slots:
                arena.answer(event, slot)

    def _follow(self, user: User) -> None:
        selection, said = user.selection, len(self.notes)
        try:
            with alone_with(self.pid):
                self._hooking.renew_loaded()
                found = self._find(user, selection)
                del self.notes[said:]  # what is not there any more, or not yet, has been said
                if not found.labels.keys() <= user.place.labels.keys():
                    self._exchange(user, found, selection)
        except UsageError:
            pass  # nothing of it is there
        except (ShadowgraphError, OSError) as error:
            note = f"{selection.text}: what was loaded is not followed: {error}"
            self.notes.extend([note] if note not in self.notes else [])

    def _replace(self, user: User, selection: Selection) -> None:
        if self._held_until is not None:
            self._exchange(user, self._find(user, selection), selection)
            self._hold()
            return
        with alone_with(self.pid), end_told(self.pid):
            self._exchange(user, self._find(user, selection), selection)

    def _exchange(self, user: User, found: Found, selection: Selection) -> None:
        if user.place.registry is not self._hooking.registry:
            raise StartError(f"process {self.pid} has executed another program; register {user.name} on that anew")
        make_room(user, found)
        with user.changing:
            readings = self._hooking.exchange(Switch.of(user, found, selection.text))
            user.exchanged(found.labels, readings)
        self._listen(found)

    def _unregister(self, user: User) -> None:
        if user not in self._users:
            return
        place = user._place
        assert place is not None
        with place.registry.locked():
            if not place.is_ended:
                place.registry.arm(place.slot, on=False)
            user.give_up()
            if not isinstance(user, Recorder):
                place.registry.remove(place.slot)
        self._users.remove(user)
        if isinstance(user, Ops):
            self._hooking.take_out(user, place)
        if isinstance(user, Recorder):
            end_recorder(user.agent, place.slot)
            user.finish(ended=not runs(self.pid))

    def _prepare(self, user: Recorder, found: Found) -> None:
        """Give a recorder a place with buffers of its own."""
        agent = self._hooking.agent
        assert agent is not None and found.chosen is not None
        slot = claim_place(agent, user.settings).slot
        try:
            user.prepare(agent, slot, self.pid, found.chosen)
        except BaseException:
            give_back_recorder_slot(agent, slot)
            raise
