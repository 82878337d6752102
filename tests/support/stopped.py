"""A program with the agent in it, held by ptrace: stepped, stopped and looked at by the tests of stack traces."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from shadowgraph.agent import layout
from shadowgraph.agent.inject import Settings
from shadowgraph.errors import StartError
from shadowgraph.ops.choices import EnteredProcess
from shadowgraph.ops.entering import enter
from shadowgraph.ops.function_ids import FunctionIds
from shadowgraph.ops.known_modules import KnownModule, KnownModules
from shadowgraph.ops.selection import LibraryCalls, Selection
from shadowgraph.ops.values import Capture
from shadowgraph.stack.frame import StackTrace
from shadowgraph.stack.trace import Unwinder
from shadowgraph.target import launch, ptrace
from shadowgraph.target.memory import Memory
from shadowgraph.target.modules import Module, read_modules

__all__ = ["SMALL_RINGS", "Stopped"]

KNOWN_MODULES = KnownModules()
SMALL_RINGS = Settings(policy=layout.POLICY_OVERWRITE, segment_size=1024, segments=256, threads=64, chunks=2048)
_BREAKPOINT = b"\xcc"


class Stopped:
    """A program that stands at its entry point, hooked as ``selection`` says (None: not at all). A context manager.

    Its threads beside the first one are not seized and run freely whenever the process is not stopped as a whole.
    """

    def __init__(
        self,
        program: Path,
        *arguments: str,
        selection: Selection | None = Selection(libcalls=LibraryCalls.NONE),  # noqa: B008
        settings: Settings = SMALL_RINGS,
    ) -> None:
        self.pid = launch.launch(str(program), [str(program), *arguments])
        self.ended: int | None = None
        launch.run_to_entry(self.pid)
        self.memory = Memory(self.pid)
        self.process: EnteredProcess | None = None
        if selection is not None:
            self.process = enter(self.pid, selection, Capture(), settings, KNOWN_MODULES, FunctionIds(), follow=False)
        hooks = self.process.hooks if self.process else ()
        self.unwinder = Unwinder(self.memory, KNOWN_MODULES, hooks, self.process.agent if self.process else None)
        self.program = program
        self._held: list[int] = []

    def __enter__(self) -> Stopped:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.memory.close()
        if self.ended is None:
            os.kill(self.pid, signal.SIGKILL)
            # The first thread's end is told when no other is left, and traced ones stay till they are waited for.
            for tid in [*(tid for tid in self._held if tid != self.pid), self.pid]:
                try:
                    while os.WIFSTOPPED(ptrace.wait_stop(tid)):
                        pass
                except ChildProcessError:
                    pass

    # --- looking ---

    def trace(self) -> StackTrace:
        """The stack trace of the first thread."""
        return self.unwinder.trace(self.registers())

    def registers(self, tid: int | None = None) -> ptrace.Registers:
        """The registers of a stopped thread, the first one unless another is named."""
        return ptrace.get_registers(self.pid if tid is None else tid)

    def module(self, name: str) -> tuple[Module, KnownModule]:
        """A loaded module by its file's name."""
        module = next(module for module in read_modules(self.pid) if module.name == name)
        return module, KNOWN_MODULES.get(module)

    def address(self, function: str, module: str | None = None) -> int:
        """Where a function begins in the process."""
        loaded, known = self.module(module or self.program.name)
        return int(known.functions.start[known.functions.find_name(function)[0]]) + known.bias(loaded)

    # --- going on ---

    def step(self) -> bool:
        """One instruction; signals are delivered. False if the program has ended."""
        return self._wait(lambda number: ptrace.step(self.pid, number), 0)

    def run_to(self, addresses: Iterable[int]) -> bool:
        """Run to the first of these addresses that is reached (the current one does not count). False if none is."""
        if not self.step():
            return False
        wanted = set(addresses)
        if self.registers().rip in wanted:
            return True
        saved = {address: self.memory.read(address, 1) for address in wanted}
        for address in wanted:
            self.memory.write(address, _BREAKPOINT)
        alive = self._wait(lambda number: ptrace.cont(self.pid, number), 0)
        if alive:
            registers = self.registers()
            registers.rip -= 1
            assert registers.rip in wanted, hex(registers.rip)
            ptrace.set_registers(self.pid, registers)
            for address, byte in saved.items():
                self.memory.write(address, byte)
        return alive

    def run_free(self) -> int:
        """Let go of the program, and wait for its end; the wait status."""
        ptrace.detach(self.pid)
        self.ended = os.waitpid(self.pid, 0)[1]
        return self.ended

    def resume(self) -> None:
        """Let a program run on that was handed over."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_free(self) -> int:
        """Wait for the end of a program that was handed over; the wait status."""
        while True:
            status = os.waitpid(self.pid, 0)[1]
            if not os.WIFSTOPPED(status):
                self.ended = status
                return status

    def stop_all(self) -> list[int]:
        """Stop every thread of a program that runs free; signals on their way are delivered first."""
        stopped: list[int] = []
        while left := [tid for tid in self._threads() if tid not in stopped]:
            for tid in left:
                try:
                    ptrace.seize(tid)
                    ptrace.interrupt(tid)
                except (StartError, ProcessLookupError):
                    continue  # it has just ended
                while (status := ptrace.wait_stop(tid)) and os.WIFSTOPPED(status):
                    if ptrace.event_of(status) == ptrace.EVENT_STOP:
                        stopped.append(tid)
                        self._held.append(tid)
                        break
                    ptrace.cont(tid, os.WSTOPSIG(status))
        return stopped

    def let_all_run(self, stopped: Iterable[int]) -> None:
        """Let go of threads that stop_all() has stopped."""
        for tid in stopped:
            ptrace.detach(tid)
        self._held = []

    def _threads(self) -> list[int]:
        return [int(name) for name in os.listdir(f"/proc/{self.pid}/task")]

    def hand_over(self) -> None:
        """Let go of the program, which stays stopped, for another tracer to take."""
        ptrace.detach(self.pid, signal.SIGSTOP)

    def run(self) -> int:
        """Run to the end; the wait status."""
        while self._wait(lambda number: ptrace.cont(self.pid, number), 0):
            pass
        assert self.ended is not None
        return self.ended

    def stop_soon(self) -> bool:
        """Ask the running first thread to stop, and wait until it has. False if the program has ended."""
        ptrace.interrupt(self.pid)
        return self._wait(None, 0)

    def _wait(self, go_on: object, number: int) -> bool:
        while True:
            if callable(go_on):
                go_on(number)
            status = ptrace.wait_stop(self.pid)
            if not os.WIFSTOPPED(status):
                self.ended = status
                return False
            if ptrace.event_of(status) == ptrace.EVENT_STOP or os.WSTOPSIG(status) == signal.SIGTRAP:
                return True
            number = os.WSTOPSIG(status)
            if go_on is None:
                ptrace.cont(self.pid, number)
                number = 0
