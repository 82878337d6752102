"""A running program and the users that this controller has on it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Any, TypeVar

from shadowgraph.errors import ShadowgraphError, StartError, UsageError
from shadowgraph.live.execs import Execs
from shadowgraph.live.hooking import Hooking
from shadowgraph.live.making import seconds_since_one_was_made
from shadowgraph.live.program import Program
from shadowgraph.live.rows import user_row
from shadowgraph.live.user import User
from shadowgraph.live.worker import Worker
from shadowgraph.ops.execs import only_executes
from shadowgraph.ops.processes import alone_with, end_told, runs, sharers, vet_alone
from shadowgraph.ops.reaping import reap
from shadowgraph.ops.remarks import largest_library
from shadowgraph.ops.selection import Selection
from shadowgraph.target import launch as launching
from shadowgraph.target import ptrace
from shadowgraph.target.vet import interpreter_of_script, vet_program

__all__ = ["Target"]

_User = TypeVar("_User", bound=User)

# A program that was launched stands at its entry until no user has been registered for so long.
_HOLD_SECONDS = 1.0
_LOOK_SECONDS = 0.02
_EXEC_SECONDS = 0.001
_REAP_SECONDS = 1.0
_NEXT_SECONDS = 0.05
_ENDS = (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED)


class Target:
    """A process with the users that this controller has registered. Made by launch() and attach() (starting.py).

    As a context it leaves the process behind as it was, with its own users taken off; a program that it has launched
    is waited for.
    """

    def __init__(self, pid: int | None = None, command: Sequence[str] = (), *, follow: bool = False) -> None:
        self._users: list[User] = []
        self._held_until: float | None = None
        self._status: int | None = None
        self._launched = pid is None
        self._closed = False
        self._reaped = 0.0
        self._execs = Execs(self._enter, self._ended)
        self._program = Program(self._make_hooking(pid or 0, follow), self, self._execs.answer, self._post)
        self.has_followed = False  # into a program that it or a child of it has executed
        self._programs = [self._program]  # and others, that it or its children have executed
        self._worker = Worker(self._idle, _LOOK_SECONDS)
        self._worker.start()  # last: it looks at all of the above
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
        refusals = self._hooking.refusals
        refused = [refusals.sentence()] if refusals else []
        unmet = self._hooking.unmet.sentences(self._awaited)
        return [*refused, *self._hooking.notes, *unmet, *self._execs.remarks]

    @property
    def awaited(self) -> list[str]:
        """Those of the notes that are about libraries which are not there yet."""
        return list(self._hooking.unmet.awaited(self._awaited))

    @property
    def _awaited(self) -> set[str]:
        """The patterns of users, while something may come that they match."""
        if self._closed or self.has_ended():
            return set()
        return {rule.text for user in list(self._users) for rule in user.selection.rules}

    @property
    def users(self) -> list[dict[str, Any]]:
        """All users of the process, those of other controllers included, in the order of their registration."""
        registry = self._hooking.registry
        if registry is None:
            return []
        rows = [user_row(registry, slot) for slot in registry.slots()]
        if self._worker.do(self._has_executed):
            rows = [{**row, "state": "exec'ed"} for row in rows]
        elif rows and self.has_ended() and not sharers(registry.arena.inode, 0):
            rows = [row if row["state"] == "faulted" else {**row, "state": "ended"} for row in rows]
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
            for program in list(self._programs):
                self._worker.do(program.follow_no_more)
            self._worker.do(self._execs.close)
            for user in list(self._users):
                self._worker.do(lambda user=user: self._unregister(user))  # type: ignore[misc]
            self._worker.do(self._let_go)
            self._worker.do(self._has_executed)
            for program in list(self._programs):
                self._worker.do(program.look)
                program.close()
                self._worker.do(program.hooking.leave)
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
        if not self._launched:
            return not runs(self.pid)
        if self._status is None:
            try:
                # Looked at first: the stops of a process that is being traced are for the worker.
                seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if seen is not None and seen.si_code in _ENDS:
                    self._status = os.waitpid(self.pid, 0)[1]
            except ChildProcessError:
                return True
        return self._status is not None

    @property
    def _hooking(self) -> Hooking:
        return self._program.hooking

    # --- in the worker's thread ---

    def _make_hooking(self, pid: int, follow: bool) -> Hooking:
        return Hooking(pid, follow=follow)

    def _post(self, job: Callable[[], None]) -> None:
        def done() -> None:
            job()
            self._follow_execs()

        self._worker.post(done)

    def _launch(self, command: Sequence[str]) -> int:
        path = launching.find_program(command[0])
        vet_program(path)
        self._hooking.script = path if interpreter_of_script(path) else ""
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
        """Whether the process runs another program by now, where we are not; which is said."""
        if self._execs.concerns(self.pid) or not self._hooking.has_executed():
            return False
        with suppress(OSError):
            program = os.readlink(f"/proc/{self.pid}/exe")
            note = (
                f"process {self.pid} has executed another program, {program}: what was counted until then stays; "
                "a user that is to see calls of the new one is registered again"
            )
            self._note(note)
        return True

    def _note(self, note: str) -> None:
        notes = self._hooking.notes
        notes.extend([note] if note not in notes else [])

    def _idle(self) -> None:
        self._follow_execs()
        now = time.monotonic()
        # Nobody launches a program to leave it alone: before there is a user there is more to come.
        is_due = self._held_until is not None and now > self._held_until and bool(self._users)
        if is_due and seconds_since_one_was_made() > _HOLD_SECONDS:
            self._let_go()
        if now - self._reaped > _REAP_SECONDS:
            self._reap()

    def _reap(self) -> None:
        """Give back what forked children have left, and programs that all their processes have left."""
        self._reaped = time.monotonic()
        if self._hooking.registry is not None:
            self._has_executed()
        for program in list(self._programs):
            registry = program.hooking.registry
            if program is not self._program and not self._execs.leave(program) and program.look_whether_left():
                self._forget(program)
                self._reaped -= _REAP_SECONDS - _NEXT_SECONDS  # one at a time: others may be about to begin
                return
            elif registry is not None:
                with registry.locked():
                    reap(registry, program.pid)

    def _forget(self, program: Program) -> None:
        """Keep what was counted in a program that is over. Users keep their own places until they are taken off."""
        for user, part in list(program.parts.items()):
            if part is not user:
                user.leave(program.remove(user))
        if not program.parts:
            self._programs.remove(program)

    def _hold(self) -> None:
        self._held_until = time.monotonic() + _HOLD_SECONDS
        self._hooking.is_held = True

    def _let_go(self) -> None:
        if self._held_until is not None:
            self._held_until = None
            self._hooking.is_held = False
            ptrace.detach(self.pid)

    def _register(self, user: User) -> None:
        selection = user.selection
        self._see_through()
        if self._held_until is not None:
            path = os.readlink(f"/proc/{self.pid}/exe")
            must = not (self._hooking.follow and only_executes(path))
            self._program.add(user, user, self._program.find(user, selection, must=must))
            if not must and not user.place.labels:
                self._execs.silent(selection.text, path)
            self._hold()
        else:
            with alone_with(self.pid), end_told(self.pid):
                self._program.add(user, user, self._program.find(user, selection))
        self._users.append(user)
        for program in self._other_programs(selection):
            part = user.another()
            if self._tried(program, selection, lambda: self._add_part(program, user, part)):  # noqa: B023 (at once)
                user.join(part)

    def _add_part(self, program: Program, user: User, part: User) -> None:
        program.add(user, part, program.find(part, user.selection, must=False))

    def _other_programs(self, selection: Selection) -> Iterator[Program]:
        """Those that children run, and that can be looked at."""
        for program in list(self._programs):
            if program is self._program or program.look_whether_left():
                continue
            if runs(program.pid) and not program.hooking.has_executed():
                yield program
            else:
                self._note(f"{selection.text}: not in children that process {program.pid} has left behind")

    def _tried(self, program: Program, selection: Selection, change: Callable[[], None]) -> bool:
        """Change something in a program that a child has executed, which may end at any time."""
        try:
            with alone_with(program.pid):
                change()
        except (ShadowgraphError, OSError) as error:
            if runs(program.pid):
                self._note(f"{selection.text}: not in process {program.pid}: {error}")
            return False
        return True

    def _replace(self, user: User, selection: Selection) -> None:
        self._see_through()
        here = self._program.parts.get(user)
        if here is None:
            raise StartError(f"process {self.pid} has executed another program; register {user.name} on that anew")
        if self._held_until is not None:
            self._program.exchange(here, self._program.find(here, selection), selection)
            self._hold()
        else:
            with alone_with(self.pid), end_told(self.pid):
                self._program.exchange(here, self._program.find(here, selection), selection)
        for program in self._other_programs(selection):
            part = program.parts.get(user)
            if part is not None and part.has_place:
                self._tried(program, selection, lambda: self._exchange_part(program, part, selection))  # noqa: B023

    def _exchange_part(self, program: Program, part: User, selection: Selection) -> None:
        program.exchange(part, program.find(part, selection, must=False), selection)

    def _unregister(self, user: User) -> None:
        if user not in self._users:
            return
        self._see_through()
        self._users.remove(user)
        for program in [program for program in self._programs if user in program.parts]:
            part = program.remove(user)
            if part is not user:
                user.leave(part)
            if program.is_left and not program.parts:
                self._programs.remove(program)
        user.taken_off()

    # --- programs that are executed ---

    def _enter(self, pid: int, before: Program, is_held: bool) -> Program:
        """A process has executed another program, which stands at its entry: users go along."""
        hooking = Hooking(pid, follow=True, before=before.hooking)
        program = Program(hooking, self, self._execs.answer, self._post)
        hooking.is_held = is_held
        problem: ShadowgraphError | None = None
        for user, part in before.parts.items():
            if not part.has_place:
                continue
            try:
                with nullcontext() if is_held else alone_with(pid):
                    self._add_part(program, user, user.another())
            except ShadowgraphError as error:
                problem = error
                self._note(f"{os.readlink(f'/proc/{pid}/exe')}: {error}")
        hooking.is_held = False
        if problem is not None and not program.parts:
            raise problem
        for user, part in program.parts.items():
            user.join(part)
            if pid == before.pid:
                before.parts[user].moved()
            if not len(part.place.numbers):
                self._execs.silent(user.selection.text, os.readlink(f"/proc/{pid}/exe"))
        self._programs.append(program)
        self.has_followed = True
        if pid == self.pid:
            self._program = program
        return program

    def _ended(self, pid: int, status: int) -> None:
        """A process has ended of whose end the worker was told."""
        if self._launched and pid == self.pid:
            self._status = status

    def _follow_execs(self) -> None:
        self._execs.follow()
        self._worker.pause = _EXEC_SECONDS if self._execs else _LOOK_SECONDS

    def _see_through(self) -> None:
        """Wait until nobody is about to execute: such a process is ours already, and cannot be stopped once more."""
        while self._execs:
            for program in list(self._programs):
                program.look()
            self._follow_execs()
            if self._execs:
                time.sleep(_EXEC_SECONDS)
