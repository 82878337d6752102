"""Hooking libraries that a process has loaded since it was entered, or forked.

What is to be hooked is found out for the process that has loaded them: a forked child shares its parent's arena, and no
code that either has got since. The process that was entered is hooked by the thread that loads, in which it waits: all
libraries that are not hooked are new there. In a forked child others may be running code of theirs, so all its threads
stand still for a moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from shadowgraph.agent.hooks import Hooks, Jumps, Placed, Request, hook, lay_out, lay_out_again, map_all, write_jumps
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.kept import Moves, moves_into
from shadowgraph.agent.standing import Restorers, Standing
from shadowgraph.errors import ShadowgraphError, StartError
from shadowgraph.ops.borrowing import borrowed, refuse_other_program
from shadowgraph.ops.choices import Choice, EnteredProcess
from shadowgraph.ops.entering import choose_loaded
from shadowgraph.ops.function_ids import Numbers
from shadowgraph.ops.hooked_before import HookedBefore
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.present import join_functions
from shadowgraph.ops.processes import alone_with, runs, sharers
from shadowgraph.ops.refusals import Refusals
from shadowgraph.ops.requests import count_hooks, request_hooks
from shadowgraph.ops.selection import Selection
from shadowgraph.ops.values import Capture
from shadowgraph.target.memory import Memory, program_mark, read_mappings
from shadowgraph.target.modules import read_modules
from shadowgraph.target.remote import RemoteThread
from shadowgraph.target.stopping import StoppedProcess

__all__ = ["Loaded", "find_loaded", "hook_alike", "hook_children", "hook_in_child", "hook_loaded"]

_PLACE_TRIES = 5


@dataclass
class Loaded:
    """What is to be hooked of the libraries that a process has loaded.

    ``again``: our hooks of some that have come back. ``shared``: hooks as in another process, for the same numbers.
    ``requests``: what gets numbers of its own. ``choices`` are all that is wanted and not hooked by us.
    """

    again: list[Hooks] = field(default_factory=list)
    shared: list[Placed] = field(default_factory=list)
    requests: list[tuple[Choice, Request]] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)

    @property
    def needs_hooks(self) -> bool:
        """Whether code is to be changed."""
        return bool(self.again or self.shared or self.requests)


def find_loaded(
    memory: Memory,
    agent: Agent,
    hooks: list[Hooks],
    selection: Selection,
    capture: Capture,
    known_modules: KnownModules,
    ids: Numbers,
    refused: Refusals,
    recorder: int | None,
) -> Loaded:
    """Look at a process; nothing is changed. ``hooks`` are ours, of all processes that share the arena.

    What we have hooked of a module is all that is wanted of it for a ``recorder``, not for others.
    """
    found = Loaded()
    mappings = read_mappings(memory.pid)
    before = HookedBefore(memory, agent.zones, hooks)
    for module in read_modules(memory.pid, mappings):
        if not selection.touches(module.name):
            continue
        gone = before.by_us(module)
        found.again += gone or []
        if gone is not None and recorder is not None:
            continue
        choice = choose_loaded(module, selection, known_modules)
        if choice is None:
            continue
        shared = before.as_elsewhere(module, mappings)
        mappings += [mapping for one in shared for mapping in one.mappings]
        known = before.numbers(module)
        for hooked in [*shared, *(lay_out_again(one, agent.zones) for one in gone or ())]:
            known |= hooked.entries
        request = request_hooks(choice, capture, ids, refused, known)
        if request is not None:
            found.requests.append((choice, replace(request, recorder=recorder)))
        found.shared += shared
        found.choices.append(choice)
    return found


def hook_loaded(
    tid: int,
    process: EnteredProcess,
    selection: Selection,
    capture: Capture,
    known_modules: KnownModules,
    ids: Numbers,
) -> None:
    """Hook what is wanted of modules that the process has loaded since it was entered; their code has not run yet.

    ``tid`` is the stopped thread that loads them.
    """
    memory, agent = Memory(process.pid), process.agent
    try:
        what = (selection, capture, known_modules, ids, process.refused, process.slot)
        found = find_loaded(memory, agent, process.hooks, *what)
        planned = [
            (choice, request, choice.known.plan(request.rows).for_rows(request.rows))
            for choice, request in found.requests
        ]
        with RemoteThread(tid, memory) as thread:
            for hooks in found.again:
                write_jumps(memory, hooks)
            for placed in found.shared:
                placed.map(thread)
                placed.map_way_back(thread)
                placed.fill(memory)
                write_jumps(memory, placed.hooks)
            for choice, request, plan in planned:
                hooks = hook(thread, choice.module, choice.known.bias(choice.module), plan, request, agent)
                count_hooks(hooks, choice, request, process)
        process.traced.update(join_functions(agent, process.slot, found.choices))
    finally:
        memory.close()


def hook_in_child(
    pid: int,
    process: EnteredProcess,
    selection: Selection,
    capture: Capture,
    known_modules: KnownModules,
    ids: Numbers,
    *,
    recorded: bool = True,
) -> list[Choice]:
    """Hook what is wanted of libraries that a process has loaded which has forked from ``process``; what is wanted.

    ``recorded``: functions get the recorder of ``process`` for a user at once, else none.
    """
    memory = Memory(pid)
    try:
        mark = program_mark(pid)
        what = (selection, capture, known_modules, ids, process.refused, process.slot if recorded else None)
        found = find_loaded(memory, process.agent, process.hooks, *what)
        child = _Child(memory, process, found, mark)
        if found.needs_hooks:
            child.hook()
        if recorded:
            process.traced.update(join_functions(process.agent, process.slot, found.choices))
        return found.choices
    finally:
        memory.close()


def hook_alike(pid: int, process: EnteredProcess) -> None:
    """Hook in a process that has forked from ``process`` before what has been hooked there since.

    That is what both have at the same place, as before a fork; the functions keep their numbers.
    """
    memory = Memory(pid)
    try:
        mark = program_mark(pid)
        found, mappings = Loaded(), read_mappings(pid)
        before = HookedBefore(memory, process.agent.zones, process.hooks)
        for module in read_modules(pid, mappings):
            found.again += before.by_us(module) or []
            shared = before.as_elsewhere(module, mappings)
            mappings += [mapping for one in shared for mapping in one.mappings]
            found.shared += shared
        if found.needs_hooks:
            _Child(memory, process, found, mark).hook()
    finally:
        memory.close()


def hook_children(process: EnteredProcess, since: int) -> list[str]:
    """Do so in all that began no earlier than ``since``; sentences about those where that cannot be done."""
    problems = []
    for pid in sharers(process.agent.arena.inode, since):
        if pid == process.pid:
            continue
        try:
            with alone_with(pid):
                hook_alike(pid, process)
        except (ShadowgraphError, OSError) as error:
            if runs(pid):
                problems.append(
                    f"process {pid}, which was forked before: calls of what is hooked now are not seen: {error}"
                )
    return problems


@dataclass
class _Child:
    """A forked child that is about to get hooks of its own."""

    memory: Memory
    process: EnteredProcess
    loaded: Loaded
    mark: bytes

    def hook(self) -> None:
        """Hook it. If that fails, it runs on as if nothing had been."""
        pid, zones = self.memory.pid, self.process.agent.zones
        placed = self._place()
        for place in placed:
            place.fill(self.memory)
        restorers = Restorers.of(self.memory, zones)
        with StoppedProcess(pid) as stop:
            refuse_other_program(pid, self.mark)
            self._write(Standing(stop, self.memory, restorers), placed)

    def _place(self) -> list[Placed]:
        """Lay all thunks out in free memory, and map them. What runs may have taken a place in the meantime."""
        pid = self.memory.pid
        for _ in range(_PLACE_TRIES):
            placed = self._lay_out()
            with borrowed(pid, self.memory, self.mark, [], own_stack=False) as thread:
                if map_all(thread, placed):
                    return placed
        raise StartError(f"process {pid} takes memory faster than room for thunks can be found in it")

    def _lay_out(self) -> list[Placed]:
        pid, placed = self.memory.pid, list(self.loaded.shared)
        mappings = [*read_mappings(pid), *(mapping for place in placed for mapping in place.mappings)]
        for choice, request in self.loaded.requests:
            mappings.sort(key=lambda mapping: mapping.start)
            bias = choice.known.bias(choice.module)
            plan = choice.known.plan(request.rows).for_rows(request.rows)
            place = lay_out(pid, mappings, choice.module, bias, plan, request, self.process.agent.zones)
            mappings += place.mappings
            placed.append(place)
        return placed

    def _write(self, standing: Standing, placed: list[Placed]) -> None:
        """The moment in which all its threads stand still."""
        there = {(module.path, module.base) for module in read_modules(self.memory.pid)}
        shared = len(self.loaded.shared)
        jumps, moves = list[Jumps](), list[Moves]()

        def lead(hooks: Hooks) -> None:
            jumps.append(Jumps(self.memory, hooks))
            moves.append(moves_into(hooks.thunks, jumps[-1].usable))

        for index, place in enumerate(placed):
            module = place.hooks.module
            if (module.path, module.base) not in there:
                continue  # unloaded meanwhile
            if index >= shared:
                place.fill_records(self.process.agent)
            lead(place.hooks)
            if index >= shared:
                choice, request = self.loaded.requests[index - shared]
                count_hooks(place.hooks, choice, request, self.process)
                for row in place.hooks.refused:
                    choice.numbers.pop(row, None)
        for hooks in self.loaded.again:
            if (hooks.module.path, hooks.module.base) in there:
                lead(hooks)
        standing.move(moves)  # first: in the copies they are right in any case, should we be killed here
        for some in jumps:
            some.write()
