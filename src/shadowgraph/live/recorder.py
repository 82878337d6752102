"""Recording calls of a running program beside other users: a trace as that of `shadowgraph record`."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.entries import RECORDER_SLOT
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.errors import UsageError
from shadowgraph.live.user import Numbers, Place, User
from shadowgraph.ops.choices import Chosen
from shadowgraph.ops.drain import Drain, Numbering, process_command
from shadowgraph.ops.function_ids import FunctionIds
from shadowgraph.ops.leaving import Leaving
from shadowgraph.ops.processes import sharers
from shadowgraph.ops.result import end_of
from shadowgraph.ops.selection import LibraryCalls, Selection
from shadowgraph.trace.folder import SPOOL, NewTrace
from shadowgraph.trace.spool_writer import SpoolWriter
from shadowgraph.trace.ticks import clock_pair, read_ticks

if TYPE_CHECKING:
    from shadowgraph.live.chosen_before import Found

__all__ = ["Recorder"]

_POLICIES = {"block": layout.POLICY_BLOCK, "drop": layout.POLICY_DROP, "overwrite": layout.POLICY_OVERWRITE}
_IDLE_SECONDS = 0.02
_NOTE_SECONDS = 1.0


class Recorder(User):
    """Records calls into the trace folder ``path``; :func:`shadowgraph.open` reads it once the user is unregistered.

    Without ``functions``: all of the executable, and what it calls of the libraries. ``on_full``: ``block``, ``drop``
    or ``overwrite``, as in `shadowgraph record`. A process has one recorder at a time.
    """

    slot = RECORDER_SLOT

    def __init__(
        self,
        path: str | os.PathLike[str],
        functions: Sequence[str] = (),
        *,
        when: str | None = None,
        on_full: str = "block",
        force: bool = False,
        name: str = "",
    ) -> None:
        super().__init__(functions, when=when, name=name)
        if on_full not in _POLICIES:
            raise UsageError(f"on_full: {on_full} is none of {', '.join(_POLICIES)}")
        self.path = Path(path)
        self.policy = _POLICIES[on_full]
        self._force = force
        self._ids = FunctionIds()
        self._told: set[int] = set()
        self._writing = threading.Lock()  # to the spool
        self._trace: NewTrace | None = None
        self._spool: SpoolWriter | None = None
        self._drain: Drain | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def selection_of(self, functions: Sequence[str]) -> Selection:
        """Which functions are meant by patterns."""
        return super().selection_of(functions) if functions else Selection(libcalls=LibraryCalls.DIRECT)

    def row(self, registry: Registry, cells: Cells, numbers: Numbers, at: int) -> UserRow:
        """The recorder's row."""
        return UserRow(
            layout.USER_RECORDER, self.name, self.selection.text, at_exit=True, is_timed=True, is_simple=True
        )

    # --- from its registration on ---

    def prepare(self, agent: Agent, pid: int, chosen: Chosen) -> None:
        """Make the trace, and be ready to drain; called before the user is registered."""
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = [os.fsdecode(word) for word in file.read().rstrip(b"\0").split(b"\0")]
        metadata: dict[str, Any] = {
            "program": chosen.executable.path,
            "executable": chosen.executable.path,
            "arguments": arguments,
            "directory": os.readlink(f"/proc/{pid}/cwd"),
            "on_full": next(name for name, policy in _POLICIES.items() if policy == self.policy),
        }
        self._trace = NewTrace(self.path, metadata, force=self._force)
        self._trace.keep()
        self._spool = spool = SpoolWriter(self._trace.folder / SPOOL)
        self._stop.clear()
        self._base = int(agent.arena.header["tick_base"])
        numbering, command = Numbering(), process_command(pid)

        def new_process(process: int, parent: int, start: int) -> int:
            number, numbering.processes = numbering.processes, numbering.processes + 1
            row = {"process": number, "pid": process, "parent": parent, "command": command, "start": start}
            spool.append("processes", [row])
            return number

        spool.append("clock", clock_pair(self._base))
        self._ids.join(agent)
        self._tell_functions(spool, chosen)
        self._drain = Drain(agent.arena, spool, numbering, self._base, new_process)

    def _tell_functions(self, spool: SpoolWriter, chosen: Chosen) -> None:
        """Tell the spool of functions that it has not heard of."""
        for choice in chosen.choices.values():
            table, path = choice.known.functions, choice.module.path
            self._ids.module(path, choice.module.name)
            for row, number in choice.numbers.items():
                if number in self._told:
                    continue
                self._told.add(number)
                name = choice.names.get(row) or table.name(row)
                self._ids.adopt(number, path, int(table.start[row]), name, int(table.size[row]))
        self._ids.append_new(spool)

    def make_room(self, place: Place, found: Found) -> None:
        """Have the names of functions in the trace before there are calls of them."""
        assert self._spool is not None and found.chosen is not None
        with self._writing:
            self._tell_functions(self._spool, found.chosen)

    def registered(self, place: Place) -> None:
        """It has a place: begin to drain."""
        super().registered(place)
        self._thread = threading.Thread(target=self._run, name="shadowgraph recorder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        drain, spool = self._drain, self._spool
        assert drain is not None
        assert spool is not None
        looked = 0.0
        while not self._stop.is_set():
            drain.arena.beat()
            bell = int(drain.arena.header["bell"])
            with self._writing:
                if drain.take():
                    continue
            drain.arena.wait(_IDLE_SECONDS, bell)
            looked += _IDLE_SECONDS
            if looked > _NOTE_SECONDS:  # if we are killed, the last note counts
                looked = 0.0
                with self._writing:
                    spool.append("clock", clock_pair(self._base))
                    drain.append_open_calls()

    # --- to its end ---

    def keep(self, place: Place) -> None:
        """There is nothing to be read but the trace."""

    def finish(self, *, ended: bool) -> None:
        """The user is gone from the registry: take the last of it and write the tables."""
        drain, spool, trace = self._drain, self._spool, self._trace
        if drain is None or spool is None or trace is None:
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        header = drain.arena.header
        drain.others_stay = True
        if not ended:
            Leaving(lambda: sharers(drain.arena.inode, 0), lambda _: True, drain.freeze).run()  # the hooks go later
        header["recording"] = 0
        drain.take()
        spool.append("clock", clock_pair(self._base))
        now = read_ticks() - self._base
        drain.finish(now)
        drain.arena.answer()
        spool.append("end", end_of(spool, now, None, stopped=not ended))
        spool.close()
        self._drain = self._spool = self._trace = None
        from shadowgraph.trace.convert import convert

        written = convert(trace.folder)
        self._losses |= {name: int(written[name]) for name in ("missed", "filtered")}
