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
from shadowgraph.live.user import Place, User
from shadowgraph.live.written_trace import WrittenTrace
from shadowgraph.ops.choices import Chosen
from shadowgraph.ops.drain import Drain
from shadowgraph.ops.function_ids import ArenaNumbers
from shadowgraph.ops.leaving import Leaving
from shadowgraph.ops.processes import sharers
from shadowgraph.ops.recorder_slot import give_back_recorder_slot
from shadowgraph.ops.selection import LibraryCalls, Selection

if TYPE_CHECKING:
    from shadowgraph.live.found import Found, Numbers

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
        self._trace: WrittenTrace | None = None  # which it shares with those who stand for it in other programs

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.slot = None
        self._numbers: ArenaNumbers | None = None
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
        self._losses_before = {}

    # --- from its registration on ---

    def prepare(self, agent: Agent, slot: int, pid: int, chosen: Chosen) -> None:
        """Be ready to drain; called before the user is registered in a slot that is its own."""
        registry = Registry(agent.arena, agent.zones)
        self.agent, self.slot = agent, slot
        self._stop.clear()
        if self._trace is None:
            metadata = self.metadata(pid, chosen.executable.path)
            self._trace = WrittenTrace(self.path, metadata, registry.tick_base, force=self.force)
        trace = self._trace
        self._numbers = numbers = ArenaNumbers(trace.ids, registry)
        with trace.writing:
            trace.tell_functions(numbers, chosen)
            begun = (trace.spool, trace.numbering, trace.tick_base, trace.new_process_of(pid))
            self._drain = Drain(agent, slot, *begun, renumbered=numbers.renumbered)

    def give_back(self) -> None:
        """Give the place back that it has been prepared for."""
        if self.slot is not None:
            give_back_recorder_slot(self.agent, self.slot)
        if self._trace is not None and not self._trace.is_kept:
            self._trace.undo()
            self._trace = None

    def make_room(self, place: Place, found: Found) -> None:
        """Have the names of functions in the trace before there are calls of them."""
        assert self._trace is not None and self._numbers is not None and found.chosen is not None
        with self._trace.writing:
            self._trace.tell_functions(self._numbers, found.chosen)

    def registered(self, place: Place) -> None:
        """It has a place: begin to drain."""
        super().registered(place)
        if self._trace is not None:
            self._trace.keep()
        self._thread = threading.Thread(target=self._run, name="shadowgraph recorder", daemon=True)
        self._thread.start()

    def done_outside(self, place: Place) -> None:
        """Another process records for it (:mod:`shadowgraph.live.outside`), and has this place."""
        super().registered(place)

    def _run(self) -> None:
        drain, trace = self._drain, self._trace
        assert drain is not None
        assert trace is not None
        looked = noted = time.monotonic()
        while not self._stop.is_set():
            drain.rings.beat()
            bell = int(drain.rings.row["bell"])
            with trace.writing:
                taken, now = drain.take(), time.monotonic()
                if now - looked > _LOOK_SECONDS:
                    looked = now
                    for pid in [pid for pid in drain.pids if drain.has_ended(pid)]:  # what they have not filled is free
                        drain.finish_process(pid, trace.now())
                if now - noted > _NOTE_SECONDS:  # if we are killed, the last note counts
                    noted = now
                    trace.note_clock()
                    drain.append_open_calls()
            if not taken:
                drain.rings.wait(_IDLE_SECONDS, bell)

    def left_by(self, pid: int) -> None:
        """A process has executed another program: what it had in flight here is open."""
        drain, trace = self._drain, self._trace
        if drain is not None and trace is not None:
            with trace.writing:
                drain.finish_process(pid, trace.now())

    # --- to its end ---

    def keep(self, place: Place) -> None:
        """There is nothing to be read but the trace."""

    def finish(self, *, ended: bool) -> None:
        """No call reaches it any more in this program: take the last of it, and give its place back."""
        drain, trace = self._drain, self._trace
        if drain is None or trace is None:
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with trace.writing:
            if not ended:
                trace.leave_running()
                Leaving(lambda: sharers(drain.arena.inode, 0), lambda _: True, drain.freeze).run()  # the hooks go later
            drain.rings.stop()
            drain.take()
            trace.note_clock()
            drain.finish(trace.now())
        give_back_recorder_slot(self.agent, drain.slot)
        self._drain = self._numbers = None

    def taken_off(self) -> None:
        """Write the tables of the trace."""
        if self._trace is not None:
            written = self._trace.write()
            self._trace = None
            self.has_written({name: int(written[name]) for name in ("missed", "filtered")})
