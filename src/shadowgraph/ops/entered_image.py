"""One executed program that is being recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from shadowgraph.agent import layout
from shadowgraph.agent.registry import Registry
from shadowgraph.agent.rings import RECORDER_SLOTS
from shadowgraph.errors import ShadowgraphError
from shadowgraph.ops.choices import EnteredProcess
from shadowgraph.ops.drain import Drain
from shadowgraph.ops.function_ids import ArenaNumbers, FunctionIds, Numbers
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.leaving import Leaving, has_users
from shadowgraph.ops.places import Renumbering
from shadowgraph.ops.processes import alone_if_free, find_thread, just_now, runs, sharers, shares, start_time
from shadowgraph.ops.recorder_slot import end_recorder, give_back_recorder_slot, is_taken_off, stop_answering
from shadowgraph.ops.selection import Selection
from shadowgraph.ops.values import Capture
from shadowgraph.target import ptrace

__all__ = ["EnteredImage"]


@dataclass
class EnteredImage:
    """One executed program: the process that was entered, and those that forked from it.

    ``numbers`` are those of its functions, which others may have given.
    """

    process: EnteredProcess
    drain: Drain
    numbers: Numbers
    _began: int = field(init=False)

    def __post_init__(self) -> None:
        self._began = start_time(self.process.pid) or 0

    def registry(self) -> Registry:
        """Who uses it."""
        return Registry(self.process.agent.arena, self.process.agent.zones)

    def leave_process(self, pid: int, ended: int) -> None:
        """A process has executed another program: what it had in flight here is open."""
        if pid in self.drain.pids:
            self.drain.finish_process(pid, ended)

    def lives(self) -> bool:
        """Whether any process shares the arena: also one that has forked and not called a traced function yet."""
        return shares(self.process.pid, self.drain.arena.inode) or bool(self.sharing())

    def leave(self) -> Leaving:
        """Take the recorder off, and the hooks if nobody else uses them."""
        leaving = Leaving(self.sharing, self._has_others, self._freeze)
        leaving.run()
        end_recorder(self.process.agent, self.process.slot)  # if no process of it was left
        return leaving

    def finish(self, ended: int) -> None:
        """Take the last of what has been recorded; the place and the buffer are free then."""
        self.drain.rings.stop()
        self.drain.take()
        self.drain.finish(ended)
        give_back_recorder_slot(self.process.agent, self.process.slot)

    def numbers_for_more(self) -> Numbers:
        """Who gives numbers to functions that are hooked from now on: the arena.

        Others may have come, and a function may have several, in processes that have it at different places.
        """
        registry = self.registry()
        if isinstance(self.numbers, FunctionIds):
            self.numbers = numbers = ArenaNumbers(self.numbers, registry)
            self.drain.renumbering = Renumbering(numbers.renumbered)
        return self.numbers

    def traced(self) -> set[int]:
        """The functions that are recorded, by their numbers in the trace."""
        return {self.numbers.in_trace(number) for number in self.process.traced}

    def _has_others(self, pid: int) -> bool:
        return has_users(self.process.agent, pid, but=self.process.slot)

    def _freeze(self, pid: int) -> None:
        """The process stands still: of all functions what was called until now is recorded, and nothing later."""
        end_recorder(self.process.agent, self.process.slot)
        self.drain.freeze(pid)

    def is_taken_off(self) -> bool:
        """Whether somebody else has taken the recorder off."""
        return is_taken_off(self.process.agent, self.process.slot)

    def sharing(self) -> list[int]:
        """The processes that share the arena."""
        return sharers(self.drain.arena.inode, self._began)

    def is_left_to_others(self, pid: int) -> bool:
        """Whether a process that lives has gone over to another program: another recorder has seen to that."""
        drain = self.drain
        return not drain.is_alone and not drain.has_ended(pid) and not shares(pid, drain.arena.inode)

    def asked(self) -> Iterator[Any]:
        """The events that it is for us to answer now: where several recorders answer, one does after the other."""
        slot, kinds = self.process.slot, (layout.EVENT_EXEC, layout.EVENT_EXEC_FAILED, layout.EVENT_LOADED)
        before = list(RECORDER_SLOTS[: RECORDER_SLOTS.index(slot)])
        for event in self.drain.arena.asked([slot], kinds):
            if not event["waits"][before].any():
                yield event

    def answer(self, event: Any) -> None:
        """Let the thread behind an event go on, as far as we are concerned."""
        self.drain.arena.answer(event, self.process.slot)

    def answer_no_more(self) -> None:
        """Let all threads go on that wait for us."""
        stop_answering(self.process.agent, self.process.slot)

    def hook_loaded(
        self, pid: int, tid: int, selection: Selection, capture: Capture, known_modules: KnownModules
    ) -> list[str] | None:
        """Hook what a thread has loaded, which waits for that; sentences about what could not be hooked.

        None if others change the hooks at this moment.
        """
        from shadowgraph.ops.loaded_later import hook_children, hook_in_child, hook_loaded  # few recordings need it
        from shadowgraph.ops.unseen import unseen_in_child

        with self._alone_if_free(pid) as alone:
            if not alone:
                return None
            what = (self.process, selection, capture, known_modules, self.numbers_for_more())
            if pid != self.process.pid:
                try:
                    hook_in_child(pid, *what)
                except (ShadowgraphError, OSError) as error:
                    return unseen_in_child(pid, selection, known_modules, self.process.agent.zones["kept"], error)
                return []
            ptrace.seize(tid, ptrace.OPTION_MARK_SYSTEM_CALLS)
            ptrace.stop(tid)
            try:
                hook_loaded(tid, *what)
                return hook_children(self.process, just_now())  # forked while that was done
            finally:
                ptrace.detach(tid)

    @contextmanager
    def _alone_if_free(self, pid: int) -> Iterator[bool]:
        """Whether nobody else changes hooks of a process of this program at this moment, nor of that one's parent."""
        with ExitStack() as held:
            pids = [self.process.pid, pid] if pid != self.process.pid and runs(self.process.pid) else [pid]
            yield all(held.enter_context(alone_if_free(one)) for one in pids)

    def who_asks(self, event: Any) -> tuple[int, int]:
        """The pid and tid of the thread behind an event, which knows itself by those of its own PID namespace."""
        pid, tid = int(event["pid"]), int(event["tid"])
        real = self.drain.pid_of(pid)
        return (pid, tid) if real is None or real == pid else (real, find_thread(real, tid) or tid)
