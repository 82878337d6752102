"""Draining the rings of one arena into a spool, while the program runs and after it has ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.registry import Registry
from shadowgraph.agent.rings import Rings
from shadowgraph.ops.in_flight import (
    START_MASK,
    InFlight,
    calls_in_flight,
    forget_calls,
    open_row,
    take_off_recorder,
    threads_in_flight,
)
from shadowgraph.ops.losses import Losses
from shadowgraph.ops.places import Renumbering, count_calls, has_holes
from shadowgraph.ops.processes import find_process, find_thread, shares, start_time
from shadowgraph.ops.stopped import Stopped
from shadowgraph.ops.thread_names import ThreadNames
from shadowgraph.trace.spool_writer import SpoolWriter
from shadowgraph.trace.ticks import read_ticks

__all__ = ["Drain", "Numbering", "process_command"]

_LAST_RECORDS = 4 * layout.RECORD_SIZE


@dataclass
class Numbering:
    """Numbers of processes and threads in the trace, over all arenas."""

    processes: int = 0
    threads: int = 0


@dataclass
class _Thread:
    """A thread as the trace knows it. ``next`` is the sequence number of its next segment."""

    number: int
    process: int
    pid: int
    tid: int
    started: int
    next: int = 0
    lost_here: int = 0


@dataclass
class _Frozen:
    """What was written and in flight in a process when its hooks were taken out; nothing counts from then on.

    ``used`` has how far each of its segments was written, by index and sequence number.
    """

    used: dict[tuple[int, int], int]
    open_calls: list[dict[str, int]]
    ended: int


class Drain:
    """Takes full segments of a recorder's from an arena, in order for each thread, and gives them back zeroed.

    ``shortest`` is the least duration of a call that is recorded, in ticks. ``renumbered`` has the functions that have
    another number in the trace than in the arena. ``losses`` count from before the recorder was registered, if given.

    ``pids`` are the processes seen in the arena so far that have not been finished. They are known by the numbers that
    they have for us, not by those that processes in PID namespaces of their own have for themselves.
    """

    def __init__(
        self,
        agent: Agent,
        slot: int,
        spool: SpoolWriter,
        numbering: Numbering,
        tick_base: int,
        new_process: Callable[[int, int, int], int],
        shortest: int = 0,
        renumbered: Mapping[int, int] | None = None,
        losses: Losses | None = None,
    ) -> None:
        self.arena = agent.arena
        self.slot = slot
        self.rings = Rings(agent.arena, slot)
        self.calls_taken = 0
        self.pids: set[int] = set()
        self._spool = spool
        self._numbering = numbering
        self._registry = Registry(agent.arena, agent.zones)
        self._told_of_others = False
        if (agent.arena.registry["users"]["kind"] != layout.USER_FREE).sum() > 1:
            self._tell_of_others()
        self._tick_base = tick_base
        self._new_process = new_process
        self._threads: dict[int, _Thread] = {}
        self._losses = losses or Losses(agent.arena, slot)
        self._processes: dict[int, int] = {}  # by pid: a process is one executed program, or a fork of it
        self._began: dict[int, int | None] = {}  # by pid
        self._outside: dict[int, int] = {}  # pid by the number in a PID namespace
        self._first_process = -1
        self._frozen: dict[int, _Frozen] = {}  # by pid
        self._shortest = shortest
        self.renumbering = Renumbering({} if renumbered is None else renumbered)
        self._stopped: Stopped | None = None
        self._names = ThreadNames(lambda number, name: self._tell([{"thread": number, "name": name}]))

    # --- while the program runs ---

    def take(self) -> int:
        """Move all full segments to the spool; returns how many there were."""
        self._meet_threads()
        self._names.look(time.monotonic())
        full = np.flatnonzero(self.rings.segments["state"] == layout.SEGMENT_FULL)
        taken = self._take_in_order(full, final=False)
        if self._spool.stopped is not None:
            self._stop()  # by what another arena's records did not find room for
        self._retire_threads()
        if taken or len(full):
            self.rings.answer()
        return taken

    def _take_in_order(self, indexes: npt.NDArray[np.intp], *, final: bool) -> int:
        """A thread's segments in sequence; one that is missing (not seen as full yet) holds up those behind it."""
        segments = self.rings.segments
        order = np.lexsort((segments["sequence"][indexes], segments["thread"][indexes]))
        taken = 0
        for index in indexes[order].tolist():
            thread = self._threads.get(int(segments["thread"][index]))
            if thread is None:
                continue
            sequence = int(segments["sequence"][index])  # now: once the segment is free, it is another's
            if not final and sequence != thread.next:
                continue
            if self._take_segment(index, thread, final=final):
                thread.next = sequence + 1
                taken += 1
        return taken

    def _stop(self) -> None:
        """The recording has come to a limit, and the programs run on: what is in flight is open, and ends here.

        Threads that wait for room still do so: what is in flight is read first.
        """
        if self._stopped is not None:
            return
        calls: dict[int, set[InFlight]] = {}
        for pid in self.pids - self._frozen.keys():
            rows = []
            for entry, call in calls_in_flight(self.arena, self._entries(pid), self.slot):
                now, number = read_ticks() - self._tick_base, self._threads[entry].number
                if (now - call.start) & START_MASK >= self._shortest:  # what is shorter may yet be filtered
                    calls.setdefault(number, set()).add(call)
                    rows.append(self._open_row(number, call, now))
            self._spool.append("open", rows, self._processes[pid])
        self._stopped = Stopped(calls, self._frozen)
        self._spool.append("end", {"tick": read_ticks() - self._tick_base, "reason": self._spool.stopped})
        self.rings.row["recording"] = 0

    def _take_segment(self, index: int, thread: _Thread, *, final: bool) -> bool:
        """Append one segment; False while a place in it is reserved and not yet filled (see native/agent/ring.c)."""
        used = int(self.rings.segments["used"][index])
        data = self.rings.data[index, :used]
        words = data.view(np.uint64)
        if not final and has_holes(words):
            return False
        self.renumbering.apply(words)
        if used and not self._spool.append_records(thread.number, data.data, thread.process):
            thread.lost_here += count_calls(words)
            self._stop()
        self.calls_taken += used // layout.RECORD_SIZE
        data[:] = 0
        self.rings.segments["used"][index] = 0
        self.rings.segments["state"][index] = layout.SEGMENT_FREE
        return True

    def _meet_threads(self) -> None:
        """Give numbers to threads that have appeared in the table."""
        table = self.arena.threads
        states = table["state"]
        for entry in np.flatnonzero((states == layout.THREAD_LIVE) | self._dead_for_us()).tolist():
            row = table[entry]
            known = self._threads.get(entry)
            if known is not None and known.started == int(row["started"]):
                continue
            pid, process = self._process(int(row["pid"]), int(row["parent_pid"]), int(row["started"]) - self._tick_base)
            number = self._numbering.threads
            self._numbering.threads += 1
            started = int(row["started"])
            tid = (pid in self._outside.values() and find_thread(pid, int(row["tid"]))) or int(row["tid"])
            self._threads[entry] = _Thread(number, process, pid, tid, started)
            name = bytes(row["name"]).split(b"\0")[0].decode(errors="replace")
            is_here = partial(shares, pid, self.arena.inode)
            name = self._names.meet(number, pid, tid, name, is_here, time.monotonic())
            self._tell(
                [
                    {
                        "thread": number,
                        "process": process,
                        "pid": pid,
                        "tid": tid,
                        "name": name,
                        "start": started - self._tick_base,
                    }
                ],
            )

    def _tell(self, threads: list[dict[str, Any]]) -> None:
        """What is known of threads, or is new."""
        self._spool.append("threads", threads)

    def _process(self, own_number: int, parent: int, started: int) -> tuple[int, int]:
        """The pid and the number in the trace of the process that calls itself and its parent so.

        ``started`` is when the thread that is seen of it did, in ticks since the base.
        """
        if own_number not in self._outside and (parent == 0 or parent in self._outside):
            found = find_process(own_number, self.arena.inode)  # in another PID namespace, if it still lives
            if found is not None and found != own_number:
                self._outside[own_number] = found
        pid = self._outside.get(own_number, own_number)
        number = self._processes.get(pid)
        if number is None:
            number = self._processes[pid] = self._new_process(pid, self._outside.get(parent, parent), started)
            self._began[pid] = start_time(pid) if shares(pid, self.arena.inode) else None
            self._first_process = number if self._first_process < 0 else self._first_process
        self.pids.add(pid)
        return pid, number

    def pid_of(self, own_number: int) -> int | None:
        """The pid of a living process that shares the arena and calls itself so."""
        pid = self._outside.get(own_number, own_number)
        return pid if shares(pid, self.arena.inode) else find_process(own_number, self.arena.inode)

    def has_ended(self, pid: int) -> bool:
        """Whether a process has ended, be there another one with its number."""
        began = self._began.get(pid)
        return began is None or began != start_time(pid)

    def _retire_threads(self) -> None:
        """Let go of dead threads whose segments have been taken, and whose coroutines have returned."""
        table, segments = self.arena.threads, self.rings.segments
        dead = np.flatnonzero(self._dead_for_us())
        if not len(dead):
            return
        busy = set(segments["thread"][segments["state"] != layout.SEGMENT_FREE].tolist())
        busy |= threads_in_flight(self.arena)
        for entry in dead.tolist():
            if entry not in busy and entry in self._threads:
                self._finish_thread(entry)
                table["waits"][entry, self.rings.number] = 0

    def _dead_for_us(self) -> npt.NDArray[np.bool_]:
        """Which entries are those of dead threads that we have not let go of."""
        table = self.arena.threads
        dead: npt.NDArray[np.bool_] = (table["state"] == layout.THREAD_DEAD) & (
            table["waits"][:, self.rings.number] != 0
        )
        return dead

    def _finish_thread(self, entry: int) -> None:
        self._put_right(entry)
        thread = self._threads.pop(entry)
        self._names.end(thread.number)
        ended = int(self.arena.threads["ended"][entry])
        if ended:
            self._tell([{"thread": thread.number, "end": ended - self._tick_base}])
        lost = self._losses.of_thread(entry, thread.started, thread.lost_here)
        self._spool.append("counters", [{"thread": thread.number, "process": thread.process, **lost}])

    def _put_right(self, entry: int) -> None:
        """Before a thread, or what is in flight of it, is forgotten: what the agent has counted since the stop."""
        if self._stopped is not None:
            thread = self._threads[entry]
            in_flight = {call for _, call in calls_in_flight(self.arena, [entry], self.slot)}
            thread.lost_here += self._stopped.uncounted(thread.number, in_flight)

    # --- when a process has ended, or the recording does ---

    def freeze(self, pid: int) -> None:
        """A process stands still and has no hooks any more: what it has written counts, and what is in flight is open.

        Calls in flight return without a record (their open calls lose their functions). A thread may stand between
        writing a record and ending the call: then it is not open any more.
        """
        self._meet_threads()
        segments = self.rings.segments
        entries = self._entries(pid)
        owned = np.isin(segments["thread"], entries) & (segments["state"] == layout.SEGMENT_OWNED)
        used = {}
        written = set()
        for index in np.flatnonzero(owned).tolist():
            used[index, int(segments["sequence"][index])] = size = self._written(index)
            last = self.rings.data[index, max(size - _LAST_RECORDS, 0) : size].view(np.uint64)
            written.update(last[::2].tolist())
        for entry in entries:
            self._put_right(entry)
        now = read_ticks() - self._tick_base
        in_flight = calls_in_flight(self.arena, entries, self.slot)
        in_flight = [(entry, call) for entry, call in in_flight if call.start not in written]
        rows = [self._open_row(self._threads[entry].number, call, now) for entry, call in in_flight]
        take_off_recorder(self.arena, entries, self.slot)
        self._frozen[pid] = _Frozen(used, rows, now)

    def _entries(self, pid: int) -> list[int]:
        return [entry for entry, thread in self._threads.items() if thread.pid == pid]

    def finish_process(self, pid: int, ended: int, status: int | None = None) -> None:
        """Take what a process that has ended (or is left alone from now on) has written, and its calls in flight.

        ``ended`` is when, in ticks since the base; ``status`` its wait status, which its parent alone gets to know.
        """
        self._meet_threads()
        self._finish_known(pid, ended, status)

    def _finish_known(self, pid: int, ended: int, status: int | None) -> None:
        segments = self.rings.segments
        frozen = self._frozen.get(pid)
        if frozen is not None:
            ended = min(ended, frozen.ended)
        entries = self._entries(pid)
        mine = np.isin(segments["thread"], entries) & (segments["state"] != layout.SEGMENT_FREE)
        for index in np.flatnonzero(mine & (segments["state"] == layout.SEGMENT_OWNED)).tolist():
            segments["used"][index] = self._written(index)
        if frozen is not None:
            for (index, sequence), used in frozen.used.items():
                if mine[index] and int(segments["sequence"][index]) == sequence:
                    segments["used"][index] = used
        self._take_in_order(np.flatnonzero(mine), final=True)
        self._append_open_calls(pid, frozen)
        for entry in entries:
            self._tell([{"thread": self._threads[entry].number, "end": ended}])
            self._finish_thread(entry)
        self._let_go(entries, ended=self.has_ended(pid) or not shares(pid, self.arena.inode))
        if pid in self._processes:
            code = None if status is None else os.waitstatus_to_exitcode(status)
            self._spool.append("processes", [{"process": self._processes[pid], "end": ended, "status": code}])
        self.pids.discard(pid)
        self._frozen.pop(pid, None)
        self._processes.pop(pid, None)
        self._began.pop(pid, None)
        self._outside = {number: outside for number, outside in self._outside.items() if outside != pid}
        self.rings.answer()

    def _let_go(self, entries: list[int], *, ended: bool) -> None:
        """We are done with threads; where their process has ``ended``, and all recorders are, they are gone."""
        with self._registry.locked():
            table, number = self.arena.threads, self.rings.number
            for entry in entries if ended else []:
                if int(table["state"][entry]) == layout.THREAD_LIVE:
                    table["waits"][entry] = self.arena.rings["controller_pid"] != 0
                    table["state"][entry] = layout.THREAD_DEAD
            table["waits"][entries, number] = 0
            if ended:
                forget_calls(self.arena, [entry for entry in entries if not table["waits"][entry].any()])

    def _written(self, index: int) -> int:
        """How far a segment has been written: to its last place that is not zero."""
        words = self.rings.data[index].view(np.uint64)
        filled = np.flatnonzero(words)
        size = layout.RECORD_SIZE
        return 0 if not len(filled) else (int(filled[-1]) * 8 // size + 1) * size

    @property
    def is_alone(self) -> bool:
        """Whether nobody else has been seen in the arena."""
        return not self._told_of_others

    def _look_for_others(self) -> None:
        if not self._told_of_others and not self._registry.is_alone(self.slot):
            self._tell_of_others()

    def _tell_of_others(self) -> None:
        """Others use the arena, too: their calls count in the depths of ours, which are put right later (depths.py)."""
        self._told_of_others = True
        self._spool.append("metadata", {"beside_others": True})

    def append_open_calls(self) -> None:
        """Note the calls in flight of all processes: if we are killed, the last note counts."""
        self._look_for_others()
        for pid in self.pids:
            self._append_open_calls(pid)

    def _append_open_calls(self, pid: int, frozen: _Frozen | None = None) -> None:
        """The calls in flight of a process, from the shared half of the shadow frames."""
        if self._stopped is not None and pid not in self._stopped.left:
            return  # what was in flight at the stop has been told
        if frozen is not None:
            rows = frozen.open_calls
        else:
            now = read_ticks() - self._tick_base
            in_flight = calls_in_flight(self.arena, self._entries(pid), self.slot)
            rows = [self._open_row(self._threads[entry].number, call, now) for entry, call in in_flight]
        if pid in self._processes:
            self._spool.append("open", rows, self._processes[pid])

    def _open_row(self, thread: int, call: InFlight, now: int) -> dict[str, int]:
        function = self.renumbering.numbers.get(call.function, call.function)
        return open_row(thread, call._replace(function=function), now)

    def finish(self, ended: int) -> None:
        """Finish all processes, and note what threads without an entry of their own have lost."""
        self._look_for_others()
        self._meet_threads()  # once: those that are finished may run on, and would be met anew
        for pid in sorted(self.pids):
            self._finish_known(pid, ended, None)
        missed, dropped = self._losses.of_nobody()
        if missed or dropped:
            row = {
                "thread": None,
                "process": max(self._first_process, 0),
                "missed": missed,
                "dropped": dropped,
                "filtered": 0,
            }
            self._spool.append("counters", [row])


def process_command(pid: int) -> str:
    """The command line of a process, as a shell would show it."""
    import shlex

    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return shlex.join(os.fsdecode(word) for word in words)
