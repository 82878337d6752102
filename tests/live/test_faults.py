"""A handler that faults is caught: its user is switched off and says why, and the program goes on as ever."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import shadowgraph as sg
from tests.support.manners import program

_ROUNDS = 20000

# Each faults at call 5000, in a way of its own.
FAULTS = {
    "reads where nothing is": ("(void)*(volatile int *)0x777;", signal.SIGSEGV),
    "divides by zero": ("volatile int zero = 0; volatile int x = 5000 / zero; (void)x;", signal.SIGFPE),
    "is no code": ("__builtin_trap();", signal.SIGILL),
    "calls into nothing": ("((void (*)(void))0x1000)();", signal.SIGSEGV),
    "faults with floating point": (
        "volatile double d = 1.5; d *= sg_arg(call, 0); *(volatile double *)0x777 = d;",
        signal.SIGSEGV,
    ),
}
_SOURCE = """
#include <shadowgraph/ops.h>
int on_entry(struct sg_call *call) {{ if (sg_arg(call, 0) == 5000) {{ {fault} }} return 1; }}
void on_exit(struct sg_call *call) {{ (void)call; }}
"""


@pytest.fixture(scope="module")
def path() -> Path:
    return Path(program("live_own_faults"))


@pytest.mark.parametrize("kind", FAULTS)
def test_a_faulting_handler_is_switched_off_and_the_program_goes_on(
    path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    fault, number = FAULTS[kind]
    source = _SOURCE.format(fault=fault)
    faulting = sg.Ops(["work"], source=source, entry="on_entry", exit="on_exit")
    harmless = sg.Ops(["work"], source=_SOURCE.format(fault=""), entry="on_entry", name="harmless")
    with sg.launch([str(path), str(_ROUNDS)]) as target:
        counter = target.register(sg.Counter(["work"]))
        target.register(faulting)
        target.register(harmless)
        assert target.wait() == 0
        states = {user["name"]: user["state"] for user in target.users}
    assert capfd.readouterr().out.splitlines() == [f"{_ROUNDS * (_ROUNDS - 1)} {_ROUNDS // 1000}", "OK"]
    assert counter.counts() == {f"{path.name}!work": _ROUNDS}
    assert states == {"counter": "ended", "ops": "faulted", "harmless": "ended"}
    assert faulting.fault.startswith(f"signal {int(number)} at address")
    assert harmless.fault == ""


def test_a_fault_at_the_exit_is_caught_too(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = """
    #include <shadowgraph/ops.h>
    void on_exit(struct sg_call *call) { if (sg_result(call) == 5000) *(volatile int *)0x777 = 1; }
    """
    faulting = sg.Ops(["work"], source=source, exit="on_exit")
    with sg.launch([str(path), str(_ROUNDS)]) as target:
        target.register(faulting)
        assert target.wait() == 0
    assert capfd.readouterr().out.splitlines()[-1] == "OK"
    assert faulting.fault == f"signal {int(signal.SIGSEGV)} at address 0x777"


_AT_CALL = """
#include <shadowgraph/ops.h>
static volatile uint64_t calls;
static int counted(void) {{ return ++calls == 1000; }}
int on_entry(struct sg_call *call) {{ if ({entry}) {fault}; (void)call; return 1; }}
void on_exit(struct sg_call *call) {{ if ({exit}) {fault}; (void)call; }}
"""


@pytest.mark.parametrize("where", ["entry", "exit"])
@pytest.mark.parametrize("fault", ["*(volatile long *)(0x777 & ~(calls >> 40)) = (long)call", "__builtin_trap()"])
def test_a_user_alone_that_faults_leaves_all_registers_as_they_were(
    where: str, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    checks_itself = program("values_all_registers", "o2")
    conditions = {"entry": "0", "exit": "0", where: "counted()"}
    faulting = sg.Ops(["*"], source=_AT_CALL.format(fault=fault, **conditions), entry="on_entry", exit="on_exit")
    with sg.launch([checks_itself, "20000"]) as target:
        target.register(faulting)
        assert target.wait() == 0
    assert faulting.fault.startswith("signal ")
    assert "OK" in capfd.readouterr().out


def test_a_program_that_dies_of_a_fault_of_its_own_dies_of_it(path: Path) -> None:
    ops = sg.Ops(["work"], source=_SOURCE.format(fault=""), entry="on_entry", exit="on_exit")
    with sg.launch([str(path), str(_ROUNDS), "dies"]) as target:
        target.register(ops)
        assert target.wait() == 128 + signal.SIGSEGV


def test_when_the_handlers_are_gone_the_choices_are_the_programs_own(path: Path) -> None:
    with sg.launch([str(path), "2000000000"]) as target:
        target.resume()
        while not (before := caught_signals(target.pid)):
            time.sleep(0.001)
        ops = target.register(sg.Ops(["work"], source=_SOURCE.format(fault=""), entry="on_entry"))
        while_guarded = caught_signals(target.pid)
        ops.unregister()
        target.close()
        after = caught_signals(target.pid)
        os.kill(target.pid, signal.SIGKILL)
    assert (before, after) == ({signal.SIGSEGV}, {signal.SIGSEGV})
    assert while_guarded == {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}


def caught_signals(pid: int) -> set[int]:
    """The signals for which a process has handlers (proc(5), SigCgt)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            mask = int(line.split()[1], 16)
            return {number for number in range(1, 65) if mask >> (number - 1) & 1}
    raise AssertionError(f"process {pid} says nothing of its signals")
