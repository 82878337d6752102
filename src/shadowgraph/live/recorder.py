"""Recording calls of a running program beside other users: a trace as that of `shadowgraph record`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.inject import Agent, Settings
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.errors import UsageError
from shadowgraph.live.user import Numbers, Place, User
from shadowgraph.ops.choices import Chosen
from shadowgraph.ops.drain import Drain, Numbering, process_command
from shadowgraph.ops.function_ids import FunctionIds
from shadowgraph.ops.leaving import Leaving
from shadowgraph.ops.processes import sharers
from shadowgraph.ops.recorder_slot import give_back_recorder_slot
from shadowgraph.ops.result import end_of
from shadowgraph.ops.selection import LibraryCalls, Selection
from shadowgraph.trace.folder import SPOOL, NewTrace
from shadowgraph.trace.spool_writer import SpoolWriter
from shadowgraph.trace.ticks import clock_pair, read_ticks

if TYPE_CHECKING:
    from shadowgraph.live.chosen_before import Found

__all__ = ["Recorder"]

_POLICIES = {"block": layout.POLICY_BLOCK, "drop": layout.POLICY_DROP, "overwrite": layout.POLICY_OVERWRITE}
_SMALLEST, _LARGEST = 4 * Settings.segment_size, 64 << 30
_IDLE_SECONDS = 0.02
_LOOK_SECONDS = 0.05
_NOTE_SECONDS = 1.0


class Recorder(User):
    """Records calls into the trace folder ``path``; :func:`shadowgraph.open` reads it once the user is unregistered.

    Without ``functions``: all of the executable, and what it calls of the libraries. ``on_full``: ``block``, ``drop``
    or ``overwrite``, ``buffer``: bytes for records in transit, both as in `shadowgraph record`.
    """

    goes_along = False  # a trace of several programs is made by ops/recording.py

    def __init__(
        self,
        path: str | os.PathLike[str],
        functions: Sequence[str] = (),
        *,
        when: str | None = None,
        on_full: str = "block",
        buffer: int = 64 << 20,
        force: bool = False,
        name: str = "",
    ) -> None:
        super().__init__(functions, when=when, name=name)
        self._begin_anew()
        if on_full not in _POLICIES:
            raise UsageError(f"on_full: {on_full} is none of {', '.join(_POLICIES)}")
        if not _SMALLEST <= buffer <= _LARGEST:
            raise UsageError(f"buffer: must be at least {_SMALLEST >> 10} KiB and at most {_LARGEST >> 30} GiB")
        self.path = Path(path)
        self.on_full = on_full
        segment = Settings.segment_size
        self.settings = Settings(policy=_POLICIES[on_full], segments=buffer // segment)
        self.buffer = buffer
        self.force = force
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

    def metadata(self, pid: int, executable: str) -> dict[str, Any]:
        """What is told in the trace of a process and of how it is recorded."""
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = [os.fsdecode(word) for word in file.read().rstrip(b"\0").split(b"\0")]
        return {
            "program": executable,
            "executable": executable,
            "arguments": arguments,
            "directory": os.readlink(f"/proc/{pid}/cwd"),
            "on_full": self.on_full,
        }

    def has_written(self, losses: dict[str, int]) -> None:
        """The trace has been written, with so many calls missed and filtered."""
        self._losses |= losses

    # --- from its registration on ---

    def prepare(self, agent: Agent, slot: int, pid: int, chosen: Chosen) -> None:
        """Make the trace, and be ready to drain; called before the user is registered in a slot that is its own."""
        self._trace = NewTrace(self.path, self.metadata(pid, chosen.executable.path), force=self.force)
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
        self.slot = slot
        self.agent = agent
        self._drain = Drain(agent, slot, spool, numbering, self._base, new_process)

    def give_back(self) -> None:
        """Give the place back that it has been prepared for."""
        if self.slot is not None:
            give_back_recorder_slot(self.agent, self.slot)

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

    def done_outside(self, place: Place) -> None:
        """Another process records for it (:mod:`shadowgraph.live.outside`), and has this place."""
        super().registered(place)

    def _run(self) -> None:
        drain, spool = self._drain, self._spool
        assert drain is not None
        assert spool is not None
        looked = noted = time.monotonic()
        while not self._stop.is_set():
            drain.rings.beat()
            bell = int(drain.rings.row["bell"])
            with self._writing:
                taken, now = drain.take(), time.monotonic()
                if now - looked > _LOOK_SECONDS:
                    looked = now
                    for pid in [pid for pid in drain.pids if drain.has_ended(pid)]:  # what they have not filled is free
                        drain.finish_process(pid, read_ticks() - self._base)
                if now - noted > _NOTE_SECONDS:  # if we are killed, the last note counts
                    noted = now
                    spool.append("clock", clock_pair(self._base))
                    drain.append_open_calls()
            if not taken:
                drain.rings.wait(_IDLE_SECONDS, bell)

    # --- to its end ---

    def keep(self, place: Place) -> None:
        """There is nothing to be read but the trace."""

    def finish(self, *, ended: bool) -> None:
        """No call reaches the user any more: take the last of it, give its place back, and write the tables."""
        drain, spool, trace = self._drain, self._spool, self._trace
        if drain is None or spool is None or trace is None:
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if not ended:
            Leaving(lambda: sharers(drain.arena.inode, 0), lambda _: True, drain.freeze).run()  # the hooks go later
        drain.rings.stop()
        drain.take()
        spool.append("clock", clock_pair(self._base))
        now = read_ticks() - self._base
        drain.finish(now)
        give_back_recorder_slot(self.agent, drain.slot)
        spool.append("end", end_of(spool, now, None, stopped=not ended))
        spool.close()
        self._drain = self._spool = self._trace = None
        from shadowgraph.trace.convert import convert

        written = convert(trace.folder)
        self.has_written({name: int(written[name]) for name in ("missed", "filtered")})
