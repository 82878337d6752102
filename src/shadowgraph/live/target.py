"""A running program and the users that this controller has on it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.hooks import hook
from shadowgraph.agent.inject import Agent, Settings, find_agent, guard, inject, read_zones
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import StartError, UsageError
from shadowgraph.image import Reason
from shadowgraph.live.chosen_before import ChosenBefore, Found
from shadowgraph.live.handlers import Ops
from shadowgraph.live.numbers import LiveNumbers
from shadowgraph.live.quiescence import wait_until_left
from shadowgraph.live.recorder import Recorder
from shadowgraph.live.rows import user_row
from shadowgraph.live.unused import leave_if_unused
from shadowgraph.live.user import Place, User
from shadowgraph.live.worker import Worker
from shadowgraph.ops.attaching import prepare
from shadowgraph.ops.borrowing import at_safe_place as safe_place
from shadowgraph.ops.borrowing import borrowed
from shadowgraph.ops.choices import Chosen
from shadowgraph.ops.condition import Condition
from shadowgraph.ops.entering import choose, complete, tell_runtimes
from shadowgraph.ops.handler_memory import load_with_loader, map_handlers, unload
from shadowgraph.ops.joining import arena_inode, join
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.processes import alone_with, end_told, runs, vet_alone
from shadowgraph.ops.reaping import reap
from shadowgraph.ops.recorder_slot import free_for_recorder
from shadowgraph.ops.remarks import nothing_hooked, place_in_use, refuse_agent, unmatched
from shadowgraph.ops.requests import request_hooks
from shadowgraph.ops.selection import Selection
from shadowgraph.ops.taking_over import take_over
from shadowgraph.ops.values import Capture
from shadowgraph.stack.safe_place import SafePlace
from shadowgraph.target import launch as launching
from shadowgraph.target import ptrace
from shadowgraph.target.limits import lifted
from shadowgraph.target.memory import Memory, program_mark
from shadowgraph.target.remote import RemoteThread
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
        self._before = ChosenBefore()
        self._known_modules = KnownModules()
        self._agent: Agent | None = None
        self._registry: Registry | None = None
        self._held_until: float | None = None
        self._status: int | None = None
        self._launched = pid is None
        self._closed = False
        self._reaped = 0.0
        self.notes: list[str] = []
        self._worker = Worker(self._idle, _LOOK_SECONDS)
        try:
            self.pid = self._worker.do(lambda: self._launch(command)) if pid is None else pid
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

    @property
    def users(self) -> list[dict[str, Any]]:
        """All users of the process, those of other controllers included, in the order of their registration."""
        registry = self._registry
        if registry is None:
            return []
        return [user_row(registry, slot) for slot in registry.slots()]

    # --- the program ---

    def resume(self) -> None:
        """Let a program that was launched begin now, rather than a moment after the last register()."""
        self._worker.do(self._let_go)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the process to end. Returns its exit status (128 + n for a signal), None if the time is over.

        The status of a process that was attached to is its parent's: 0 then.
        """
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
            self._worker.do(self._leave)
        finally:
            self._worker.close()

    def _wait_for_end(self, timeout: float | None = None) -> int | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._has_ended():
            if deadline is not None and time.monotonic() > deadline:
                return None
            time.sleep(_LOOK_SECONDS)
        if self._status is None:
            return 0
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def _has_ended(self) -> bool:
        if self._launched and self._status is None:
            try:
                got, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                return True
            if got == self.pid and not os.WIFSTOPPED(status):
                self._status = status
        return self._status is not None if self._launched else not runs(self.pid)

    # --- in the worker's thread ---

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
        self._held_until = time.monotonic() + _HOLD_SECONDS
        return pid

    def _vet(self, pid: int) -> None:
        vet_alone(pid)

    def _idle(self) -> None:
        now = time.monotonic()
        if self._held_until is not None and now > self._held_until:
            self._let_go()
        if self._registry is not None and now - self._reaped > _REAP_SECONDS:
            self._reaped = now
            with self._registry.locked():
                reap(self._registry, self.pid)

    def _let_go(self) -> None:
        if self._held_until is not None:
            self._held_until = None
            ptrace.detach(self.pid)

    def _register(self, user: User) -> None:
        if self._held_until is not None:
            self._add(user, Found.of(self._hook_held(user.selection)))
            self._held_until = time.monotonic() + _HOLD_SECONDS
            return
        with alone_with(self.pid), end_told(self.pid):
            self._add(user, self._find_hooked(user.selection))

    def _find_hooked(self, selection: Selection) -> Found:
        """The functions of a selection, hooked; while users of ours are on, what was hooked before stays so."""
        is_in_use = any(user.is_registered for user in self._users)
        found = self._before.get(self.pid, selection) if is_in_use else None
        if found is None:
            found = Found.of(self._hook_running(selection))
            self._before.put(self.pid, selection, found)
        return found

    def _add(self, user: User, found: Found) -> None:
        if isinstance(user, Recorder):
            self._make_room(user, found.chosen)
        self._enrol(user, found.labels, found.callers)

    def _enrol(self, user: User, labels: dict[int, str], callers: set[int]) -> None:
        assert self._registry is not None
        registry = self._registry
        numbers = np.array(sorted(labels), np.int64)
        condition = Condition.of(user.when)
        if isinstance(user, Ops):
            self._bring_in(user)

        def enrolled() -> int:
            cells = Cells(registry.arena)
            own = (user.pool_size(registry, numbers) + 63) // 64 * 64
            at = cells.find_pool(own + condition.size)
            row = condition.added_to(user.row(registry, cells, numbers, at), cells, at + own)
            row = row.with_pool(at, own + condition.size)
            return registry.add(row, numbers, np.array(sorted(callers), np.int64), slot=user.slot)

        try:
            with registry.locked():
                try:
                    slot = enrolled()
                except StartError:
                    registry.settle()  # there may be room that others have left
                    slot = enrolled()
        except StartError:
            if isinstance(user, Ops):
                self._unload(user)  # nobody has been given its handlers
            raise
        user.registered(Place(self.unregister, self._has_ended, registry, slot, labels))
        self._users.append(user)

    def _hook_held(self, selection: Selection) -> Chosen:
        """Hook what is not hooked yet of a program that stands at its entry."""
        memory = Memory(self.pid)
        try:
            with lifted(self.pid), RemoteThread(self.pid, memory) as thread:
                chosen = choose(memory, thread.call, selection, self._known_modules, follow=False)
                self._refuse_nothing(selection, chosen)
                if self._agent is None:
                    settings = complete(Settings(), chosen, self._known_modules, selection)
                    settings = replace(settings, ask_when_loaded=0)
                    self._use(inject(thread, settings, *chosen.caller))
                    assert self._agent is not None
                    tell_runtimes(memory, chosen.modules, self._known_modules, self._agent)
                assert self._registry is not None
                known, numbers = self._registry.known(), LiveNumbers(self._registry)
                refused: dict[Reason, int] = {}
                for choice in chosen.choices.values():
                    request = request_hooks(choice, Capture(), numbers, refused, known)
                    if request is None:
                        continue
                    request = replace(request, recorded=False)
                    plan, bias = choice.known.plan(request.rows), choice.known.bias(choice.module)
                    hooks = hook(thread, choice.module, bias, plan, request, self._agent)
                    for row in hooks.refused:
                        choice.numbers.pop(row, None)
            self.notes += place_in_use(selection, chosen, refused)
            return chosen
        finally:
            memory.close()

    def _hook_running(self, selection: Selection) -> Chosen:
        """Hook what is not hooked yet of a process that runs, bringing in the agent if nobody has."""
        self._rejoin()
        numbers = LiveNumbers(self._registry)
        attachment = prepare(
            self.pid,
            selection,
            Capture(),
            Settings(),
            self._known_modules,
            numbers,
            follow=False,
            joined=self._agent,
            recorded=False,
        )
        judge = SafePlace(self.pid, self._known_modules)
        try:
            self._refuse_nothing(selection, attachment.chosen)
            self.notes += place_in_use(selection, attachment.chosen, attachment.refused)
            process = attachment.carry_out(judge)
            if self._agent is None:
                self._use(process.agent)
            for hooks in process.hooks:
                for choice in attachment.chosen.choices.values():
                    if choice.module == hooks.module:
                        for row in hooks.refused:
                            choice.numbers.pop(row, None)
            return attachment.chosen
        finally:
            judge.close()
            attachment.close()

    def _refuse_nothing(self, selection: Selection, chosen: Chosen) -> None:
        """UsageError if no function that is wanted can be hooked; nothing has been changed then."""
        refuse_agent(selection, self.pid)
        refused: dict[Reason, int] = {}
        wanted = 0
        for choice in chosen.choices.values():
            rows = np.array([row for row, flags in choice.flags.items() if not flags & layout.FLAG_SILENT], np.int64)
            if not len(rows):
                continue
            plan = choice.known.plan(rows)
            wanted += int(plan.hookable[rows].sum())
            for reason in plan.reason[rows[~plan.hookable[rows]]].tolist():
                refused[Reason(reason)] = refused.get(Reason(reason), 0) + 1
        if not wanted:
            raise UsageError(nothing_hooked(selection, self._known_modules, chosen.executable.path, refused))
        self.notes += [note for note in unmatched(selection, self._known_modules) if note not in self.notes]

    def _rejoin(self) -> None:
        """Find the agent as it is now: others may have come, or begun anew since our last user went."""
        memory = Memory(self.pid)
        try:
            module = find_agent(self.pid)
            zones = read_zones(memory, module) if module is not None else {"arena": 0}
            same = self._agent is not None and arena_inode(self.pid, zones["arena"]) == self._agent.arena.inode
            if same and any(user.is_registered for user in self._users):
                return
            self._agent, self._registry = None, None
            agent = join(self.pid, memory)
            if agent is not None:
                self._use(agent)
        finally:
            memory.close()

    def _use(self, agent: Agent) -> None:
        self._agent = agent
        self._registry = Registry(agent.arena, agent.zones)
        self._before = ChosenBefore()  # functions have other numbers in another arena

    def _unregister(self, user: User) -> None:
        if self._registry is None or user not in self._users:
            return
        place = user._place
        assert place is not None
        with place.registry.locked():
            if not place.is_ended:
                place.registry.arm(place.slot, on=False)
            user.give_up()
            place.registry.remove(place.slot)
        self._users.remove(user)
        if isinstance(user, Ops):
            self._take_out(user, place.slot)
        if isinstance(user, Recorder):
            user.finish(ended=not runs(self.pid))

    def _make_room(self, user: Recorder, chosen: Chosen) -> None:
        """Let a recorder be the only one, and begin with empty buffers."""
        assert self._agent is not None
        if self._held_until is None:
            free_for_recorder(self._agent, self.pid)
            take_over(self._agent, user.policy, os.getpid())
        else:
            self._agent.arena.header["policy"] = user.policy
        user.prepare(self._agent, self.pid, chosen)

    def _bring_in(self, user: Ops) -> None:
        """Bring the code of handlers into the process."""
        load = load_with_loader if user.handlers.obstacles else map_handlers
        assert self._agent is not None
        with self._borrowed(at_safe_place=bool(user.handlers.obstacles)) as thread:
            guard(thread, self._agent.module, on=True)
            user.loaded = load(thread, user.handlers)

    def _take_out(self, user: Ops, slot: int) -> None:
        """Take it out again, when no thread runs it any more."""
        if user.loaded is None or self._registry is None or not runs(self.pid):
            return
        wait_until_left(self._registry.arena, slot, self._known_modules)
        with alone_with(self.pid):
            self._unload(user)

    def _unload(self, user: Ops) -> None:
        loaded, user.loaded = user.loaded, None
        if loaded is not None:
            with self._borrowed(at_safe_place=bool(loaded.handle)) as thread:
                unload(thread, loaded)

    @contextmanager
    def _borrowed(self, *, at_safe_place: bool) -> Iterator[RemoteThread]:
        """A thread of the process to call functions in."""
        memory = Memory(self.pid)
        try:
            if self._held_until is not None:
                with lifted(self.pid), RemoteThread(self.pid, memory) as thread:
                    yield thread
                return
            mark = program_mark(self.pid)
            if not at_safe_place:
                with borrowed(self.pid, memory, mark, [], own_stack=False) as thread:
                    yield thread
                return
            judge = SafePlace(self.pid, self._known_modules)
            try:
                with lifted(self.pid), safe_place(self.pid, memory, mark, judge, []) as thread:
                    yield thread
            finally:
                judge.close()
        finally:
            memory.close()

    def _leave(self) -> None:
        """Take all hooks out if nobody uses them any more."""
        if self._agent is None:
            return
        try:
            self.notes += leave_if_unused(self._agent)
        except StartError:
            if runs(self.pid):
                raise
