"""One process as its users need it: functions found and hooked, the code of handlers brought in and taken out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.hooks import Hooks, hook, write_jumps
from shadowgraph.agent.inject import (
    Agent,
    Settings,
    announce_handlers,
    find_agent,
    guard,
    inject,
    is_guarded,
    loading_unasked,
    read_zones,
)
from shadowgraph.agent.kept import hooked_functions
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import UsageError
from shadowgraph.image import Reason
from shadowgraph.live.chosen_before import ChosenBefore
from shadowgraph.live.exchanging import Switch, exchange
from shadowgraph.live.found import Found, may_come
from shadowgraph.live.handlers import Ops
from shadowgraph.live.numbers import LiveNumbers
from shadowgraph.live.quiescence import wait_until_left
from shadowgraph.live.shared_cells import Readings
from shadowgraph.live.unmet import Unmet
from shadowgraph.live.unused import leave_if_unused
from shadowgraph.live.user import Place
from shadowgraph.ops.asking import ask_when_loaded
from shadowgraph.ops.attaching import prepare
from shadowgraph.ops.borrowing import at_safe_place as safe_place
from shadowgraph.ops.borrowing import borrowed
from shadowgraph.ops.choices import Chosen, EnteredProcess
from shadowgraph.ops.entering import choose, complete, tell_runtimes
from shadowgraph.ops.handler_memory import load_with_loader, map_handlers, unload
from shadowgraph.ops.handler_pool import HandlerPool
from shadowgraph.ops.hooked_before import HookedBefore
from shadowgraph.ops.joining import arena_inode, join
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.loaded_later import hook_children, hook_in_child
from shadowgraph.ops.processes import alone_with, gone_with_it, runs
from shadowgraph.ops.refusals import Refusals
from shadowgraph.ops.remarks import nothing_hooked, refuse_agent, refuse_place_in_use
from shadowgraph.ops.requests import request_hooks
from shadowgraph.ops.selection import Rule, Selection
from shadowgraph.ops.values import Capture
from shadowgraph.stack.safe_place import SafePlace
from shadowgraph.target.limits import lifted
from shadowgraph.target.memory import Memory, program_mark
from shadowgraph.target.modules import read_modules
from shadowgraph.target.remote import RemoteThread

__all__ = ["Hooking"]


class Hooking:
    """Hooks functions of a process. ``agent`` and ``registry`` are None until it has the agent.

    ``is_held`` says whether it stands at its entry, stopped by us; ``notes`` are remarks for the user;
    ``refusals`` are functions that were wanted and cannot be hooked, ``unmet`` patterns that nothing has matched.
    """

    can_follow = True  # libraries that are loaded later

    def __init__(self, pid: int, *, follow: bool = False, before: Hooking | None = None) -> None:
        """``follow``: the agent asks before the process executes. ``before``: of the program that was there before."""
        self.pid = pid
        self.is_held = False
        self.follow = follow
        self.times_hooked = 0  # how often functions have been hooked: does it grow, forked children may lack some
        self.known_modules: KnownModules = KnownModules() if before is None else before.known_modules
        self.agent: Agent | None = None
        self.registry: Registry | None = None
        self.notes: list[str] = [] if before is None else before.notes
        self.refusals: Refusals = Refusals() if before is None else before.refusals
        self.unmet: Unmet = Unmet(self.known_modules) if before is None else before.unmet
        self.script = ""  # that the program interprets, if it was started for that
        self._tick_base = 0 if before is None or before.registry is None else before.registry.tick_base
        self._mark = b""
        self._resolved: dict[int, int] = {}  # indirect functions of the program; a thread that waits is not to be asked
        self._before = ChosenBefore(self.known_modules)
        self._pool: HandlerPool | None = None

    def find(self, selection: Selection, *, in_use: bool, must: bool = True) -> Found:
        """The functions of a selection, hooked. ``in_use``: while users of ours are on, what was hooked stays so.

        ``must``: UsageError if there are none.
        """
        if self.is_held:
            found = self._found(self._hook_held(selection, must=must), selection)
            self._ask_when_loaded(found)
            return found
        known = self._before.get(self.pid, selection, self.refusals) if in_use else None
        if known is not None:
            return known
        found = self._found(self.hook_running(selection, in_use=in_use, must=must), selection)
        self._ask_when_loaded(found)
        if len(found.numbers):
            self._before.put(self.pid, selection, found)
        return found

    def _found(self, chosen: Chosen, selection: Selection) -> Found:
        return Found.of(chosen, follows=may_come(selection, chosen, self.known_modules))

    def _ask_when_loaded(self, found: Found) -> None:
        """Have threads wait for us when they have loaded a library."""
        if found.follows and self.agent is not None:
            ask_when_loaded(self.agent)

    def hook_children(self, since: int) -> list[str]:
        """Hook what is hooked here in processes that have forked since then; sentences where that cannot be done."""
        assert self.agent is not None
        return hook_children(EnteredProcess(self.pid, self.agent, "", hooks=self._hooks), since)

    def find_in_child(self, pid: int, selection: Selection) -> Found:
        """The functions of a selection in libraries of a process that has forked from this one, hooked there."""
        assert self.agent is not None
        process = EnteredProcess(pid, self.agent, "", hooks=self._hooks)
        what = (selection, Capture(), self.known_modules, LiveNumbers(self.registry))
        choices = hook_in_child(pid, process, *what, recorded=False)
        self.unmet.met(selection)
        modules = read_modules(pid)
        by_place = {f"{choice.module.path} at {choice.module.base:#x}": choice for choice in choices}
        chosen = Chosen(modules, modules[0], (0, 0), by_place)  # nobody asks for its executable
        self._refused(process.refused, chosen)
        return Found.of(chosen, follows=True)

    def renew_loaded(self) -> None:
        """Something has been loaded or unloaded: hook again what has come back."""
        if self.agent is None:
            return
        memory = Memory(self.pid)
        try:
            before = HookedBefore(memory, self.agent.zones, self._hooks)
            for module in read_modules(self.pid):
                for hooks in before.by_us(module) or ():
                    write_jumps(memory, hooks)
                    self.times_hooked += 1
        finally:
            memory.close()

    def _hook_held(self, selection: Selection, *, must: bool) -> Chosen:
        """Hook what is not hooked yet of a program that stands at its entry.

        Should we be killed meanwhile, it begins.
        """
        memory = Memory(self.pid)
        try:
            chosen = self._choose_held(memory, selection)
            self.unmet.met(selection)
            if must:
                self._refuse_nothing(selection, chosen)
            else:
                self.unmet.expect(selection)
            if self.agent is None:
                settings = complete(_without_rings(), chosen, self.known_modules, selection)
                settings = replace(settings, ask_when_loaded=0, tick_base=self._tick_base)
                with self._held(memory) as thread:
                    self.use(inject(thread, settings, *chosen.caller))
                assert self.agent is not None
                tell_runtimes(memory, chosen.modules, self.known_modules, self.agent)
            assert self.registry is not None
            known, numbers = hooked_functions(memory, self.agent.zones["kept"]), LiveNumbers(self.registry)
            refused = Refusals(chosen.executable.path)
            planned = []
            for choice in chosen.choices.values():
                request = request_hooks(choice, Capture(), numbers, refused, known)
                if request is not None:
                    planned.append((choice, replace(request, recorder=None), choice.known.plan(request.rows)))
            if planned:
                with self._held(memory) as thread:
                    for choice, request, plan in planned:
                        hooks = hook(thread, choice.module, choice.known.bias(choice.module), plan, request, self.agent)
                        self._hooks.append(hooks)
                        self.times_hooked += 1
                        for row, reason in hooks.refused.items():
                            if choice.numbers.pop(row, None):
                                refused.add(choice, row, reason)
            refuse_place_in_use(selection, chosen, refused)
            self._refused(refused, chosen)
            return chosen
        finally:
            memory.close()

    def _choose_held(self, memory: Memory, selection: Selection) -> Chosen:
        """What is wanted. Which functions indirect ones stand for is found out by calling them."""
        asked: dict[int, int] = {}

        def known_or_asked(address: int) -> int:
            return self._resolved.get(address) or asked.setdefault(address, 0)

        chosen = choose(memory, known_or_asked, selection, self.known_modules, follow=self.follow)
        if not asked:
            return chosen
        with self._held(memory) as thread:
            self._resolved.update({address: thread.call(address) for address in asked})
        return choose(memory, self._resolved.__getitem__, selection, self.known_modules, follow=self.follow)

    @contextmanager
    def _held(self, memory: Memory) -> Iterator[RemoteThread]:
        """The thread of a program that stands at its entry, borrowed."""
        with lifted(self.pid), RemoteThread(self.pid, memory) as thread:
            yield thread

    def hook_running(self, selection: Selection, *, in_use: bool, must: bool = True) -> Chosen:
        """Hook what is not hooked yet of a process that runs, bringing in the agent if nobody has."""
        self._rejoin(in_use=in_use)
        numbers = LiveNumbers(self.registry)
        attachment = prepare(
            self.pid,
            selection,
            Capture(),
            replace(_without_rings(), tick_base=self._tick_base),
            self.known_modules,
            numbers,
            follow=self.follow,
            joined=self.agent,
            recorded=False,
            resolved=self._resolved,
        )
        judge = SafePlace(self.pid, self.known_modules)
        try:
            self.unmet.met(selection)
            if must:
                self._refuse_nothing(selection, attachment.chosen)
            else:
                self.unmet.expect(selection)
            refuse_place_in_use(selection, attachment.chosen, attachment.refused)
            process = attachment.carry_out(judge)
            if self.agent is None:
                self.use(process.agent)
            for hooks in process.hooks:
                self._hooks.append(hooks)
                self.times_hooked += 1
                for choice in attachment.chosen.choices.values():
                    if choice.module == hooks.module:
                        for row in hooks.refused:
                            choice.numbers.pop(row, None)
            if self.follow:
                self._see_execs(attachment.chosen)
            self._refused(process.refused, attachment.chosen)
            return attachment.chosen
        finally:
            judge.close()
            attachment.close()

    def _refused(self, refused: Refusals, chosen: Chosen) -> None:
        """Note what of a choice has been refused, and what is hooked that may have been refused before."""
        self.refusals.update(refused)
        self.refusals.hooked(chosen.choices.values())

    def _see_execs(self, chosen: Chosen) -> None:
        """Functions that execute programs may have been hooked by somebody who does not go along into them."""
        assert self.registry is not None
        with self.registry.locked():
            for choice in chosen.choices.values():
                flags = {number: layout.FLAG_EXEC for number, own in choice.present.items() if own & layout.FLAG_EXEC}
                self.registry.add_flags(flags, choice.present_variants)

    def _refuse_nothing(self, selection: Selection, chosen: Chosen) -> None:
        """UsageError if no function that is wanted can be hooked; nothing has been changed then."""
        refuse_agent(selection, self.pid)
        refused = Refusals()
        wanted = 0
        for choice in chosen.choices.values():
            rows = np.array([row for row, flags in choice.flags.items() if not flags & layout.FLAG_SILENT], np.int64)
            if not len(rows):
                continue
            plan = choice.known.plan(rows)
            wanted += int(plan.hookable[rows].sum())
            for row in rows[~plan.hookable[rows]].tolist():
                refused.add(choice, row, Reason(int(plan.reason[row])))
        awaited = self._may_come(selection, chosen)
        if not wanted and not awaited:
            raise UsageError(
                nothing_hooked(selection, self.known_modules, chosen.executable.path, refused, self.script)
            )
        self.unmet.add(selection, awaited)

    def _may_come(self, selection: Selection, chosen: Chosen) -> list[Rule]:
        """The rules that want functions of a library that is not there yet."""
        if not self.can_follow:
            return []
        loaded = [module.name for module in chosen.modules]
        return [
            rule
            for rule in selection.rules
            if rule.include and rule.module is not None and not any(rule.module(name) for name in loaded)
        ]

    def _rejoin(self, *, in_use: bool) -> None:
        """Find the agent as it is now: others may have come, or begun anew since our last user went."""
        memory = Memory(self.pid)
        try:
            module = find_agent(self.pid)
            zones = read_zones(memory, module) if module is not None else {"arena": 0}
            same = self.agent is not None and arena_inode(self.pid, zones["arena"]) == self.agent.arena.inode
            if same and in_use:
                return
            self.agent, self.registry = None, None
            agent = join(self.pid, memory)
            if agent is not None:
                self.use(agent)
        finally:
            memory.close()

    def use(self, agent: Agent) -> None:
        """The process has this agent."""
        mark = program_mark(self.pid)
        if mark != self._mark:
            self._resolved = self._resolved if not self._mark else {}
            self._pool = None
            self._mark = mark
        self._hooks: list[Hooks] = []
        self.agent = agent
        self.registry = Registry(agent.arena, agent.zones)
        self._before = ChosenBefore(self.known_modules)  # functions have other numbers in another arena

    def has_executed(self) -> bool:
        """Whether the process runs another program than the one that has been hooked; its forked children may not."""
        mark = program_mark(self.pid)
        return bool(self._mark and mark) and mark != self._mark

    # --- users ---

    def exchange(self, wanted: Switch) -> Readings:
        """Exchange the functions of a user at one moment."""
        assert self.registry is not None
        return exchange(self.registry, wanted, held=self.is_held)

    def bring_in(self, user: Ops) -> None:
        """Bring the code of a user's handlers into the process."""
        assert self.agent is not None
        handlers = user.handlers
        is_small = not handlers.obstacles and HandlerPool.fits(handlers)
        if is_small and self._pool is not None and self._place(user, self._pool):
            return
        with self._borrowed(at_safe_place=bool(handlers.obstacles)) as thread:
            guard(thread, self.agent.module, on=True)
            if is_small and self._pool is None:
                self._pool = HandlerPool(thread)
                user.loaded = self._pool.place(thread.memory, handlers)
            elif not handlers.obstacles:
                user.loaded = map_handlers(thread, handlers)
            else:
                with loading_unasked(thread, self.agent.module):
                    user.loaded = load_with_loader(thread, handlers)

    def _place(self, user: Ops, pool: HandlerPool) -> bool:
        """Write small handlers to where others were; whether there is room, and faults of handlers are caught."""
        assert self.agent is not None
        memory = Memory(self.pid)
        try:
            if is_guarded(memory, self.agent.module):
                user.loaded = pool.place(memory, user.handlers)
            return user.loaded is not None
        finally:
            memory.close()

    def announce(self, user: Ops, slot: int, epoch: int) -> None:
        """Tell the process's agent that the handlers are there of the user that is to have this slot and epoch."""
        assert self.agent is not None
        memory = Memory(self.pid)
        announce_handlers(memory, self.agent.module, slot, epoch, user.code_number)
        memory.close()

    def take_out(self, user: Ops, place: Place) -> None:
        """Take it out again, when no thread runs it any more. It may have gone with its program."""
        if user.loaded is None or place.registry is not self.registry or not runs(self.pid) or self.has_executed():
            return
        wait_until_left(place.registry.arena, place.slot, self.known_modules)
        with gone_with_it(self.pid), alone_with(self.pid):
            self.unload(user)

    def unload(self, user: Ops) -> None:
        """Take code out that no thread can be in."""
        loaded, user.loaded = user.loaded, None
        if loaded is None:
            return
        if loaded.unit is not None:
            assert self._pool is not None
            memory = Memory(self.pid)
            self._pool.give_back(memory, loaded)
            memory.close()
            return
        assert self.agent is not None
        with self._borrowed(at_safe_place=bool(loaded.handle)) as thread, loading_unasked(thread, self.agent.module):
            unload(thread, loaded)

    def leave(self) -> None:
        """Take all hooks out if nobody uses them any more."""
        if self.agent is None:
            return
        with gone_with_it(self.pid):
            self._give_back_room()
            self.notes += leave_if_unused(self.agent)

    def _give_back_room(self) -> None:
        if self._pool is not None and self._pool.is_empty and runs(self.pid) and not self.has_executed():
            with alone_with(self.pid), self._borrowed(at_safe_place=False) as thread:
                self._pool.unmap(thread)
            self._pool = None

    @contextmanager
    def _borrowed(self, *, at_safe_place: bool) -> Iterator[RemoteThread]:
        """A thread of the process to call functions in."""
        memory = Memory(self.pid)
        try:
            if self.is_held:
                with self._held(memory) as thread:
                    yield thread
                return
            mark = program_mark(self.pid)
            if not at_safe_place:
                with borrowed(self.pid, memory, mark, [], own_stack=False) as thread:
                    yield thread
                return
            judge = SafePlace(self.pid, self.known_modules)
            try:
                with lifted(self.pid), safe_place(self.pid, memory, mark, judge, []) as thread:
                    yield thread
            finally:
                judge.close()
        finally:
            memory.close()


def _without_rings() -> Settings:
    """For an arena that nobody records into yet: recorders bring their own."""
    return replace(Settings(), segments=0)
