"""A recording: a program from its start to its end, the processes it forks and the programs they become."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from shadowgraph.agent import layout
from shadowgraph.agent.inject import Settings
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import ShadowgraphError
from shadowgraph.ops.asking import ask_when_loaded
from shadowgraph.ops.borrowing import Judge, judging_nobody
from shadowgraph.ops.choices import EnteredProcess
from shadowgraph.ops.drain import Drain, Numbering, process_command
from shadowgraph.ops.entered_image import EnteredImage
from shadowgraph.ops.entering import enter
from shadowgraph.ops.execs import only_executes, refuse_confined, refuse_rights
from shadowgraph.ops.function_ids import ArenaNumbers, FunctionIds, Numbers
from shadowgraph.ops.handover import Entrance, TakenOver, asked_besides, hand_over, not_entered
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.notes import Notes
from shadowgraph.ops.pending_execs import PendingExecs
from shadowgraph.ops.processes import alone_with, end_told, start_time
from shadowgraph.ops.recorder_slot import Joined, give_back_recorder_slot, join_for_recording
from shadowgraph.ops.refusals import Refusals
from shadowgraph.ops.remarks import largest_library, nothing_hooked, refuse_agent, unused, why_unmatched
from shadowgraph.ops.result import Result, end_of
from shadowgraph.ops.selection import Selection
from shadowgraph.ops.values import Capture
from shadowgraph.target import launch, ptrace
from shadowgraph.target.exits import ExitWatch
from shadowgraph.target.stopping import let_go_of_late
from shadowgraph.target.vet import interpreter_of_script, vet_process
from shadowgraph.trace.spool_writer import SpoolWriter
from shadowgraph.trace.ticks import clock_pair, read_ticks

if TYPE_CHECKING:
    from shadowgraph.ops.entering_behind import JudgeOf

__all__ = ["Recording"]

_IDLE_SECONDS = 0.02
_LOOK_SECONDS = 0.05
_NOTE_SECONDS = 1.0


class Recording:
    """Runs a program and writes what it does to a spool.

    All ptrace requests come from the thread that calls :meth:`run`. ``stop`` may be set from a signal handler: the
    recording ends, the program goes on. ``judge_of`` gives who judges which threads of a process may be borrowed.
    """

    def __init__(
        self,
        spool: SpoolWriter,
        selection: Selection,
        settings: Settings,
        *,
        capture: Capture | None = None,
        follow: bool = True,
        judge_of: JudgeOf = judging_nobody,
    ) -> None:
        self.stop = False
        self.spool = spool
        self.selection = selection
        self.capture = capture or Capture()
        self.follow = follow
        self.judge_of = judge_of
        self.tick_base = read_ticks()
        self.settings = replace(settings, tick_base=self.tick_base, capture=int(bool(self.capture)))
        self.known_modules = KnownModules()
        self.ids = FunctionIds()
        self.numbering = Numbering()
        self.images: list[EnteredImage] = []
        self.notes = Notes()
        self.refused = Refusals()
        self.traced: set[int] = set()
        self.captured = 0
        self._execs: PendingExecs[EnteredImage] = PendingExecs()
        self._gone: dict[int, int] = {}  # wait status by pid, of those that we have waited for
        self._pulse = threading.Event()
        self._script = ""
        self.main_pid = 0
        self._status: int | None = None
        self._attached = False
        self._is_time_over = False
        self._stood_still: list[float] = []

    # --- from start to end ---

    def run(
        self,
        path: str,
        arguments: Sequence[str],
        environment: dict[bytes, bytes] | None = None,
        started: Callable[[], None] | None = None,
        seconds: float | None = None,
    ) -> Result:
        """Start the program, record until it and all it started have ended or the time is over, and say how it went."""
        self._script = path if interpreter_of_script(path) else ""
        pid = self.main_pid = launch.launch(path, arguments, environment)
        self.spool.append("clock", clock_pair(self.tick_base))
        try:
            self._enter(pid, None)
        except Exception as error:
            self._status = launch.end_behind(error, pid)
            if self._status is None:
                self._abandon(pid)
                raise
            self.notes.say("the program ended before any code of its own had run")
        except BaseException:
            self._abandon(pid)
            raise
        return self._record(pid, started, seconds)

    def run_on(self, pid: int, seconds: float | None = None, started: Callable[[], None] | None = None) -> Result:
        """Attach to a process that runs, record until it ends, ``stop`` is set or the time is over; leave it."""
        with alone_with(pid), self.judge_of(pid, self.known_modules) as judge:
            self._attach(pid, judge)
        return self._record(pid, started, seconds)

    def _attach(self, pid: int, judge: Judge) -> None:
        self.main_pid, self._attached = pid, True
        with end_told(pid):
            numbers: Numbers = self.ids
            joined = join_for_recording(pid, self.settings)
            if joined is not None:
                self._stood_still += joined.stops
                registry = Registry(joined.agent.arena, joined.agent.zones)
                numbers, self.tick_base = ArenaNumbers(self.ids, registry), registry.tick_base
                self.settings = replace(self.settings, tick_base=self.tick_base)
            self.spool.append("clock", clock_pair(self.tick_base))
            try:
                process = self._attach_to(pid, judge, joined, numbers)
            except BaseException:
                if joined is not None:
                    give_back_recorder_slot(joined.agent, joined.slot)
                raise
        self._add(process, numbers)

    def _attach_to(self, pid: int, judge: Judge, joined: Joined | None, numbers: Numbers) -> EnteredProcess:
        from shadowgraph.ops.attaching import prepare

        chosen = (self.selection, self.capture, self.settings, self.known_modules, numbers)
        attachment = prepare(pid, *chosen, follow=self.follow, joined=joined)
        try:
            refuse_agent(self.selection, pid)
            if not attachment.wanted and not self._may_come():
                path = attachment.chosen.executable.path
                raise nothing_hooked(self.selection, self.known_modules, path, attachment.refused)
            process = attachment.carry_out(judge)
        finally:
            attachment.close()
        if joined is not None:
            self._join_children(process)
        self._stood_still += attachment.stops
        return process

    def _join_children(self, process: EnteredProcess) -> None:
        """What others attached to before may have forked since: record the same functions there."""
        from shadowgraph.ops.loaded_later import hook_children

        if process.hooks:
            self.notes.say(*hook_children(process, start_time(process.pid) or 0))
        if self.selection.names_modules():
            ask_when_loaded(process.agent)

    def _record(self, pid: int, started: Callable[[], None] | None, seconds: float | None) -> Result:
        """Record what has been entered, to the end."""
        self._until = None if seconds is None else time.monotonic() + seconds
        self.spool.append("clock", clock_pair(self.tick_base))
        for image in self.images[:1]:
            self.spool.append("metadata", {"begin": image.process.began - self.tick_base})
        self._exits = ExitWatch(self._now, self._wake)  # a thread: not before the fork
        self._exits.watch(pid)
        if started is not None:
            started()
        beat = threading.Thread(target=self._beat, daemon=True)
        beat.start()
        try:
            self._watch(pid)
        finally:
            self._leave()
            self._exits.close()
            self._finish()
            self._pulse.set()
            beat.join()
        self.known_modules.cache.write()
        assert self._status is not None or self.stop
        return Result(
            self._status or 0,
            self._status is None,
            len(self.traced),
            self.refused,
            self.notes.sentences(),
            self.spool.stopped,
            tuple(self._stood_still),
            largest_library(self.known_modules, self.ids.traced_modules),
            self._attached,
            self._exits.statuses.get(pid),
            seconds if self._is_time_over else None,
        )

    def _abandon(self, pid: int) -> None:
        """The program could not be entered: nothing of it has run yet, so it is ended rather than left untraced."""
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _now(self) -> int:
        return read_ticks() - self.tick_base

    def _wake(self) -> None:
        for image in list(self.images):
            image.drain.rings.wake()

    def _beat(self) -> None:
        while not self._pulse.wait(_LOOK_SECONDS):
            for image in list(self.images):
                image.drain.rings.beat()

    def _enter(self, pid: int, former: EnteredImage | None) -> None:
        """Enter a program that has just been exec'ed, and let it run."""
        first = former is None
        if not first:
            vet_process(pid)
        asked = self._execs.asked(pid)
        launch.run_to_entry(pid, len(asked))
        if first:
            refuse_agent(self.selection, pid)
        what = (self.selection, self.capture, self.settings, self.known_modules, self.ids)
        process = enter(pid, *what, follow=self.follow)
        comes = self._may_come() or (self.follow and only_executes(process.program))
        if first and process.hooked == 0 and not comes:
            raise nothing_hooked(self.selection, self.known_modules, process.program, process.refused, self._script)
        self._add(process, self.ids)
        process.began = read_ticks()  # all that took a while, and nothing has been called in it
        if former is not None:
            hand_over(pid, former.registry(), process.agent, asked)
        ptrace.detach(pid)

    def _add(self, process: EnteredProcess, numbers: Numbers) -> None:
        """Begin to drain what has been entered."""
        # Read now: when it is first heard of, it may have ended, or execute another program.
        command = process_command(process.pid)

        def new_process(pid: int, parent: int, start: int) -> int:
            return self._new_process(pid, parent, command, start)

        renumbered = numbers.renumbered if isinstance(numbers, ArenaNumbers) else None
        begun = (self.spool, self.numbering, self.tick_base, new_process)
        shortest, losses = self.settings.minimal_ticks, process.losses
        drain = Drain(process.agent, process.slot, *begun, shortest, renumbered, losses)
        image = EnteredImage(process, drain, numbers)
        self.images.append(image)
        self._count_hooks(image)

    def _new_process(self, pid: int, parent: int, command: str, start: int) -> int:
        number = self.numbering.processes
        self.numbering.processes += 1
        row = {"process": number, "pid": pid, "parent": parent, "command": command, "start": start}
        self.spool.append("processes", [row])
        return number

    # --- the loop ---

    def _watch(self, pid: int) -> None:
        """Drain, answer events and follow execs until everything has ended or the recording is stopped."""
        looked = noted = time.monotonic()
        pause = _LOOK_SECONDS  # before the next note: more and more, since a short program may be killed soon
        while not self.stop:
            bells = [int(image.drain.rings.row["bell"]) for image in self.images]
            busy = sum(image.drain.take() for image in self.images)
            for image in self.images:
                self._answer_events(image)
            self._follow_execs()
            self._collect_main(pid)
            now = time.monotonic()
            self._is_time_over = self._until is not None and now >= self._until
            if self._is_time_over or any(image.is_taken_off() for image in self.images):
                self.stop = True
            if now - noted > pause:
                noted, pause = now, min(2 * pause, _NOTE_SECONDS)
                self.spool.append("clock", clock_pair(self.tick_base))  # if we are killed, the last one counts
                for image in self.images:
                    image.drain.append_open_calls()
            any_ended = any(self._exits.ended.keys() & image.drain.pids for image in self.images)
            if now - looked > _LOOK_SECONDS or self._status is not None or any_ended:
                looked = now
                let_go_of_late()
                self._collect_ended()
                if self._attached and not (self._execs or self.images):
                    self._status = 0  # its own is its parent's business
                if self._status is not None and not (self._execs or self.images):
                    return
            if not busy:
                self._rest(bells)

    def _rest(self, bells: list[int]) -> None:
        """Sleep until the newest program's agent rings, or for a moment."""
        if len(bells) == len(self.images) and bells and not self._execs:
            self.images[-1].drain.rings.wait(_IDLE_SECONDS if self._status is None else 0.002, bells[-1])
        else:
            time.sleep(0.001)

    def _collect_main(self, pid: int) -> None:
        if self._status is not None or self._attached or self._execs.concerns(pid):
            return
        try:
            got, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            self._status = 0
            return
        if got == pid and not os.WIFSTOPPED(status):
            self._status = status
            self._gone[pid] = status

    def _collect_ended(self) -> None:
        """Finish processes that have ended, and executed programs of which no process is left."""
        ended = dict(self._exits.ended)
        self._collect_main(self.main_pid)  # what is known to have ended has a status
        for image in list(self.images):
            for pid in list(image.drain.pids):
                if not self._execs.concerns(pid) and image.is_left_to_others(pid):
                    image.drain.finish_process(pid, self._now())
                elif pid in {**self._gone, **ended} or (image.drain.has_ended(pid) and not self._exits.watches(pid)):
                    status = self._gone.get(pid, self._exits.statuses.get(pid))
                    image.drain.finish_process(pid, self._exits.ended.get(pid, self._now()), status)
                else:
                    self._exits.watch(pid)
            if not image.drain.pids and not image.lives() and not self._execs.leave(image):
                image.finish(self._now())  # nobody shares the arena any more
                self.images.remove(image)

        for pid in ended:
            self._exits.ended.pop(pid, None)  # the number may be given to another process

    def _answer_events(self, image: EnteredImage) -> None:
        for event in image.asked():
            kind, pid, tid = int(event["kind"]), *image.who_asks(event)
            try:
                if kind in (layout.EVENT_EXEC, layout.EVENT_LOADED):
                    refuse_confined(pid)
                if kind == layout.EVENT_EXEC and not event["followed_by"]:
                    refuse_rights(pid, event["arguments"])
                    self._execs.expect(tid, pid, image, asked_besides(image.registry(), event))
                    event["followed_by"] = os.getpid()
                elif kind == layout.EVENT_EXEC:
                    self._execs.later.expect(pid, image.drain.arena.inode, image, int(event["followed_by"]))
                elif kind == layout.EVENT_EXEC_FAILED:
                    self._execs.fail(tid, pid)
                elif kind == layout.EVENT_LOADED and not self._hook_loaded(image, pid, tid):
                    continue  # others change its hooks at this moment: it waits
            except ptrace.TraceeEnded as ended:
                if tid == pid:
                    self._note_end(pid, ended.status)
            except (ShadowgraphError, OSError) as error:
                self.notes.unfollowed(error)  # it has ended, or may not be traced: it is let go
            image.answer(event)

    def _hook_loaded(self, image: EnteredImage, pid: int, tid: int) -> bool:
        """New modules are mapped, and nothing of them has run: hook them before the loader goes on, if we can now."""
        problems = image.hook_loaded(pid, tid, self.selection, self.capture, self.known_modules)
        for problem in problems or ():
            self.notes.say(problem)
        self._count_hooks(image)
        return problems is not None

    def _count_hooks(self, image: EnteredImage) -> None:
        """Count what has been hooked and refused, and name it in the spool."""
        self.traced |= image.traced()
        self.refused.update(image.process.refused)
        self.captured += self.ids.append_new(self.spool)

    def _follow_execs(self) -> None:
        """Enter the programs of processes that have exec'ed."""
        for pid, status, former in self._execs.come():
            if os.WIFSTOPPED(status):
                self._follow_exec(pid, former)
            else:
                self._note_end(pid, status)
        for pid, former, entrance in self._execs.later.come():
            former.leave_process(pid, self._now())
            if entrance is None:
                self.notes.say(not_entered(pid))
            else:
                self._follow_behind(entrance)

    def _follow_behind(self, entrance: Entrance | TakenOver) -> None:
        from shadowgraph.ops.entering_behind import enter_behind

        what = (self.selection, self.capture, self.settings, self.known_modules, self.ids, self.judge_of)
        try:
            self._add(*enter_behind(entrance.pid, *what))
            self.notes.say(*entrance.remarks)
        except (ShadowgraphError, OSError) as error:
            self.notes.unfollowed(error)
        finally:
            entrance.close()

    def _follow_exec(self, pid: int, former: EnteredImage) -> None:
        former.leave_process(pid, self._now())
        try:
            self._enter(pid, former)
        except Exception as error:
            ended = launch.end_behind(error, pid)
            if ended is not None:
                self._note_end(pid, ended)
            elif isinstance(error, ShadowgraphError | OSError):
                self.notes.unfollowed(error)
                ptrace.detach(pid)
            else:
                raise

    def _may_come(self) -> bool:
        return self.selection.waits_for(os.path.basename(module.path) for module in self.known_modules.all())

    def _note_end(self, pid: int, status: int) -> None:
        self._gone[pid] = status
        if self._status is None and pid == self.main_pid:
            self._status = status

    def _leave(self) -> None:
        """Take the hooks out of what runs on."""
        for image in self.images:
            image.answer_no_more()  # who waits for us with a parent that waits for it could not be stopped either
        self._execs.let_all_go()
        for image in self.images:
            left = image.leave()
            self._stood_still += left.stood_still
            self.notes.say(*left.notes)

    def _finish(self) -> None:
        """The last of everything: what is in the rings, what is open, the clock, why it ended."""
        self.spool.append("clock", clock_pair(self.tick_base))
        for image in self.images:
            image.finish(self._now())
        self.notes.say(*(why_unmatched(rule, self.known_modules) for rule in self.selection.unmatched))
        self.notes.say(*unused(self.capture, self.captured))
        self.spool.append("metadata", {"build_ids": self.known_modules.build_ids()})
        status = self._exits.statuses.get(self.main_pid) if self._attached else self._status
        self.spool.append("end", end_of(self.spool, self._now(), status, stopped=self.stop))
