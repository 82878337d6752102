"""Attaching to a process that runs: the agent is brought in and functions are hooked while its threads are in them.

All that takes time is done while the process runs: reading its files, planning, writing thunks. Its threads stand still
three times, each for a moment:

- one thread, for loading the agent. It must hold no lock that the loader or the allocator wants, so its stack is looked
  at first (``judge``), and where it stands in one of them it is let run until it has returned. The others run on: what
  they hold they will release. A process in which the agent is already needs none of this.
- one thread, for mapping the thunks.
- all threads, for writing the jumps. Threads that stand among bytes that are overwritten go on in the thunks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from shadowgraph.agent import layout
from shadowgraph.agent.hooks import Jumps, Placed, Request, lay_out, map_all
from shadowgraph.agent.inject import (
    Agent,
    Settings,
    find_agent,
    is_same_build,
    load,
    read_zones,
    set_ask_when_loaded,
    start,
)
from shadowgraph.agent.kept import Kept, forget, hooked_functions, moves_into, read_kept
from shadowgraph.agent.rings import forget_recorders
from shadowgraph.agent.standing import Restorers, Standing
from shadowgraph.errors import ShadowgraphError, StartError
from shadowgraph.ops.borrowing import CALL_SECONDS, Judge, at_safe_place, borrowed, refuse_other_program
from shadowgraph.ops.choices import Choice, Chosen, EnteredProcess
from shadowgraph.ops.entering import (
    choose,
    complete,
    tell_runtimes,
)
from shadowgraph.ops.function_ids import Numbers
from shadowgraph.ops.joining import live_controllers
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.leaving import leave
from shadowgraph.ops.losses import Losses
from shadowgraph.ops.present import join_functions
from shadowgraph.ops.recorder_slot import Joined, take_first_place, take_recorder_slot
from shadowgraph.ops.refusals import Refusals
from shadowgraph.ops.requests import count_hooks, request_hooks
from shadowgraph.ops.selection import Selection
from shadowgraph.ops.values import Capture
from shadowgraph.ops.within import places_in_agent
from shadowgraph.target import ptrace
from shadowgraph.target.limits import lifted
from shadowgraph.target.memory import Memory, program_mark, read_mappings
from shadowgraph.target.modules import Module, read_modules
from shadowgraph.target.remote import RemoteThread
from shadowgraph.target.running import vet_running
from shadowgraph.target.stopping import StoppedProcess
from shadowgraph.trace.ticks import read_ticks

__all__ = ["Attachment", "prepare"]

_SYS_MUNMAP = 11
_EMPTY_SECONDS = 2.0
_PLACE_TRIES = 5


@dataclass
class Attachment:
    """A process that is about to be attached to: what will be hooked is known, and nothing has been touched.

    ``joined`` is its agent if that is in use by others, who go on, and ``slot`` our recorder's there. ``recorded``:
    what is hooked gets the recorder for a user at once, else none, which is to ``follow`` into other programs or not.
    """

    pid: int
    memory: Memory
    chosen: Chosen
    requests: list[tuple[Choice, Request]]
    refused: Refusals
    selection: Selection
    settings: Settings
    known_modules: KnownModules
    mark: bytes
    stops: list[float] = field(default_factory=list)
    joined: Agent | None = None
    recorded: bool = True
    slot: int = 0
    follow: bool = False
    _former: set[tuple[int, int]] = field(default_factory=set)
    _losses: Losses | None = None

    @property
    def wanted(self) -> int:
        """How many functions will be traced, those included that others have hooked already."""
        return sum(len(choice.numbers) for choice in self.chosen.choices.values())

    def carry_out(self, judge: Judge) -> EnteredProcess:
        """Attach. If that fails, the process runs on as if nothing had been."""
        settings = complete(self.settings, self.chosen, self.known_modules, self.selection)
        if not self.recorded:  # nobody would answer
            settings = replace(settings, ask_when_loaded=0)
        module = find_agent(self.pid)
        agent = self.joined
        if agent is not None and not self.requests:
            began = read_ticks()
            if self.recorded:
                self._take_slot(agent)
            process = self._entered(agent)
            process.began = began
            self._join_functions(process)
            return process
        with lifted(self.pid):
            if module is None or (agent is None and not read_zones(self.memory, module)["arena"]):
                module, agent = self._bring_in(module, settings, judge)
            try:
                placed = self._place(agent.zones if agent else read_zones(self.memory, module))
                for place in placed:
                    place.fill(self.memory)
                return self._hook(module, agent, settings, placed)
            except BaseException:
                self._undo(module)
                raise

    def _undo(self, module: Module) -> None:
        """Leave a process that could not be attached to; the next one who attaches clears away what was mapped."""
        try:
            if self.joined is None and program_mark(self.pid) == self.mark:
                _clear_leftovers(self.pid, self.memory, module, self.stops)
        except (ShadowgraphError, OSError):
            pass  # it has ended, or cannot be stopped: what was wrong before is what the user needs to know

    def close(self) -> None:
        """Give the process's memory back."""
        self.memory.close()

    # --- the agent ---

    def _bring_in(self, module: Module | None, settings: Settings, judge: Judge) -> tuple[Module, Agent]:
        with at_safe_place(self.pid, self.memory, self.mark, judge, self.stops) as thread:
            loaded = module or load(thread)
            return loaded, start(thread, loaded, settings, *self.chosen.caller)

    # --- the thunks ---

    def _place(self, zones: dict[str, int]) -> list[Placed]:
        """Lay all thunks out in free memory, and map them. What runs may have taken a place in the meantime."""
        for _ in range(_PLACE_TRIES):
            placed = self._lay_out(zones)
            with borrowed(self.pid, self.memory, self.mark, self.stops, own_stack=False) as thread:
                if map_all(thread, placed):
                    return placed
        raise StartError(f"process {self.pid} takes memory faster than room for thunks can be found in it")

    def _lay_out(self, zones: dict[str, int]) -> list[Placed]:
        mappings = read_mappings(self.pid)
        if not mappings:
            raise StartError(f"process {self.pid} has just ended")
        placed = []
        for choice, request in self.requests:
            bias = choice.known.bias(choice.module)
            plan = choice.known.plan(request.rows).for_rows(request.rows)
            place = lay_out(self.pid, mappings, choice.module, bias, plan, request, zones)
            mappings = sorted([*mappings, *place.mappings], key=lambda mapping: mapping.start)
            placed.append(place)
        return placed

    # --- the jumps ---

    def _hook(self, module: Module, agent: Agent | None, settings: Settings, placed: list[Placed]) -> EnteredProcess:
        """The moment in which all threads stand still."""
        zones = agent.zones if agent else read_zones(self.memory, module)
        restorers = Restorers.of(self.memory, zones)
        deadline = time.monotonic() + _EMPTY_SECONDS
        while True:
            with StoppedProcess(self.pid) as stop:
                refuse_other_program(self.pid, self.mark)
                standing = Standing(stop, self.memory, restorers)
                busy = [] if agent else places_in_agent(standing, self.pid, self.memory, module, zones["kept"])
                if not busy:
                    process = self._write(stop, standing, module, agent, settings, placed)
            self.stops.append(stop.stood_still)
            if not busy:
                self._unmap_former()
                return process
            if time.monotonic() > deadline:
                raise StartError(
                    f"process {self.pid}: a call that an earlier recording has traced has stood at {busy[0]:#x} in the "
                    f"middle of its entry or return for {_EMPTY_SECONDS:g} seconds (below a signal handler, or stopped)"
                )
            time.sleep(0.001)

    def _write(
        self,
        stop: StoppedProcess,
        standing: Standing,
        module: Module,
        agent: Agent | None,
        settings: Settings,
        placed: list[Placed],
    ) -> EnteredProcess:
        if agent is None:
            agent = self._renew(stop, standing, module, settings, placed)
        if self.recorded:
            self._take_slot(agent)
        tell_runtimes(self.memory, self.chosen.modules, self.known_modules, agent)
        process = self._entered(agent)
        loaded = {(one.path, one.base) for one in read_modules(self.pid)}
        jumps, moves = [], []
        for place, (choice, request) in zip(placed, self.requests, strict=True):
            if (choice.module.path, choice.module.base) not in loaded:
                continue  # unloaded while we were planning
            place.fill_records(agent)
            jumps.append(Jumps(self.memory, place.hooks))
            moves.append(moves_into(place.hooks.thunks, jumps[-1].usable))
            count_hooks(place.hooks, choice, request, process)
        standing.move(moves)  # first: in the copies they are right in any case, should we be killed here
        for some in jumps:
            some.write()
        self._join_functions(process)
        return process

    def _entered(self, agent: Agent) -> EnteredProcess:
        path = self.chosen.executable.path
        return EnteredProcess(self.pid, agent, path, self.slot, refused=self.refused, losses=self._losses)

    def _take_slot(self, agent: Agent) -> None:
        """Register our recorder. What is lost from now on is its loss, whenever somebody begins to drain."""
        self._losses = Losses(agent.arena, self.slot)
        if self.joined is None:
            take_first_place(agent, self.selection, self.settings, follow=self.follow)
        else:
            limited = bool(self.settings.depth_limit or self.settings.minimal_ticks)
            take_recorder_slot(agent, self.selection, self.slot, follow=self.follow, limited=limited)

    def _join_functions(self, process: EnteredProcess) -> None:
        """Let the recorder, and the agent's own needs, have functions too that others have hooked already."""
        if self.joined is None or not self.recorded:
            return
        process.traced.update(join_functions(self.joined, self.slot, self.chosen.choices.values()))
        if self.selection.names_modules():  # what is loaded later is wanted, which others have not asked for
            set_ask_when_loaded(self.memory, self.joined.module)

    def _renew(
        self, stop: StoppedProcess, standing: Standing, module: Module, settings: Settings, placed: list[Placed]
    ) -> Agent:
        """Begin another recording: a new arena, no thread that knows of the former one, and its thunks given back."""
        table = read_zones(self.memory, module)["kept"]
        new = {mapping.start for place in placed for mapping in place.mappings}
        places = list(standing.places())
        tid = next(iter(stop.registers))
        with RemoteThread(tid, self.memory, own_stack=True, seconds=CALL_SECONDS) as thread:
            agent = start(thread, module, settings, *self.chosen.caller, entry="sg_renew")
        for kept in read_kept(self.memory, table):
            if kept.base not in new and not _is_needed(kept, places):
                forget(self.memory, table, kept)
                self._former.update(kept.mappings)
        _clear_thread_words(stop, self.memory, agent.zones["thread_word"])
        return agent

    def _unmap_former(self) -> None:
        """Give the memory of former thunks back: no thread was in them, and nothing leads there any more."""
        if not self._former:
            return
        with borrowed(self.pid, self.memory, self.mark, self.stops, own_stack=False) as thread:
            for base, size in self._former:
                thread.system_call(_SYS_MUNMAP, base, size)


def _is_needed(kept: Kept, places: list[int]) -> bool:
    """Whether a thread is in a block of thunks that is out of use, or may return to it."""
    return bool(kept.flags & layout.KEPT_RETURNED_INTO) or any(kept.base <= pc < kept.base + kept.size for pc in places)


def _clear_thread_words(stop: StoppedProcess, memory: Memory, place: int) -> None:
    """Make every thread begin anew: its word leads to a state that is gone (1 stays: not to be traced)."""
    for tid, registers in list(stop.registers.items()):
        if place == 0:
            changed = registers.copy()
            changed.gs_base = changed.gs_base if changed.gs_base == 1 else 0
            stop.change(tid, changed)
            continue
        address = registers.fs_base + place & 0xFFFF_FFFF_FFFF_FFFF
        try:
            if registers.fs_base and memory.read_word(address) > 1:
                memory.write(address, bytes(8))
        except OSError:
            continue  # a thread without a thread control block


def prepare(
    pid: int,
    selection: Selection,
    capture: Capture,
    settings: Settings,
    known_modules: KnownModules,
    ids: Numbers,
    *,
    follow: bool,
    joined: Joined | Agent | None = None,
    recorded: bool = True,
    resolved: dict[int, int] | None = None,
) -> Attachment:
    """Look at a process and plan what is to be hooked in it. StartError if it cannot be attached to.

    ``joined`` is its agent if others use it, and have hooked some of its functions, with our recorder's place there.
    ``resolved`` is what is known of its indirect functions; what is found out is added.
    """
    agent, slot = (joined.agent, joined.slot) if isinstance(joined, Joined) else (joined, 0)
    vet_running(pid)
    memory = _memory(pid)
    stops: list[float] = []
    mark = program_mark(pid)
    try:
        module = find_agent(pid)
        if module is not None and agent is None:
            _refuse_in_use(pid, memory, module)
            _clear_leftovers(pid, memory, module, stops)
        # Chosen twice: what has to be called in the process is found out first, and called at one stop.
        found = resolved if resolved is not None else {}
        asked: dict[int, int] = {}

        def known_or_asked(address: int) -> int:
            return found.get(address) or asked.setdefault(address, 0)

        chosen = choose(memory, known_or_asked, selection, known_modules, follow=follow)
        if asked:
            with borrowed(pid, memory, mark, stops) as thread:
                found.update({address: thread.call(address) for address in asked})
            chosen = choose(memory, known_or_asked, selection, known_modules, follow=follow)
        refused = Refusals(chosen.executable.path)
        known = hooked_functions(memory, agent.zones["kept"]) if agent is not None else None
        requests = [
            (choice, replace(request, recorder=slot if recorded else None))
            for choice in chosen.choices.values()
            if (request := request_hooks(choice, capture, ids, refused, known)) is not None
        ]
        what = (pid, memory, chosen, requests, refused, selection, settings, known_modules, mark, stops)
        return Attachment(*what, agent, recorded, slot, follow)
    except BaseException:
        memory.close()
        raise


def _memory(pid: int) -> Memory:
    """Its memory; opening it asks for the same rights as ptrace does."""
    try:
        return Memory(pid)
    except PermissionError as error:
        raise StartError(ptrace.why_not(pid, error)) from None
    except FileNotFoundError:
        raise StartError(f"process {pid} has just ended") from None


def _refuse_in_use(pid: int, memory: Memory, module: Module) -> None:
    if not is_same_build(memory, module):
        raise StartError(
            f"process {pid}: the agent of another version of Shadowgraph is in it ({module.path}); restart the process"
        )
    arena = read_zones(memory, module)["arena"]
    controllers = live_controllers(memory, arena) if arena else []
    if controllers:
        raise StartError(f"process {pid} is being recorded by process {controllers[0]} already; end that first")


def _clear_leftovers(pid: int, memory: Memory, module: Module, stops: list[float]) -> None:
    """What a controller that was killed has left: threads that wait for it, and its hooks."""
    zones = read_zones(memory, module)
    if not zones["arena"]:
        return
    forget_recorders(memory, zones["arena"])
    if any(kept.is_in_use for kept in read_kept(memory, zones["kept"])):
        stops.append(leave(pid)[0])
