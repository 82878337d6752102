"""R23, R24: gdb and elfutils, looking from outside, at every instruction of the agent's paths and of thunks.

Thunks are in an object that the loader knows, or these tools could not see through them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowgraph.agent.zones import SITE_STRIDE, Zone
from shadowgraph.ops import entering
from tests.support import libdw
from tests.support.build import PROGRAMS, build
from tests.support.call_model import CallModel, shown
from tests.support.stopped import Stopped
from tests.support.thunk_objects import ObjectHooks

GDB_SCRIPT = Path(__file__).parent.parent / "support" / "gdb_walk.py"


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stopped]:
    """The program of all paths, with thunks known to its loader, at main."""
    monkeypatch.setattr(entering, "hook", ObjectHooks(tmp_path).hook)
    with Stopped(build(PROGRAMS / "stack_paths.c", "now")) as program:
        assert program.run_to([program.address("main")])
        yield program


@pytest.mark.skipif(not libdw.available(), reason="needs elfutils' libdw")
def test_elfutils_is_right_at_each_instruction(stopped: Stopped) -> None:
    model = CallModel(stopped, shown(stopped.trace())[2:])
    end, seen, wrong = stopped.address("paths_end"), set[int](), []
    while model.step() and model.place.original != end:
        pc = stopped.registers().rip
        in_site = model.place.zone in (Zone.SITE_CALLING, Zone.SITE_RETURNED)
        place = pc % SITE_STRIDE if in_site else pc
        # Between functions, where some run on and short jumps find room, nobody has written down how to unwind.
        code = stopped.unwinder.codes.find(pc)
        between = code is not None and not code.is_described(pc) and not model.zones.is_agent_text(pc)
        if place in seen or between or stopped.trace().frames[0].function == "__longjmp":
            continue
        seen.add(place)
        found = [address for address in libdw.stack(stopped.pid) if not model.zones.is_agent_text(address)]
        if found != model.machine_frames(pc):
            wrong.append(
                (str(model.place.zone), hex(pc), list(map(hex, found)), list(map(hex, model.machine_frames(pc))))
            )
    assert len(seen) > 1000
    assert wrong == []


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
def test_gdb_is_right_at_each_instruction(stopped: Stopped) -> None:
    assert stopped.unwinder.zones is not None
    low, high = stopped.unwinder.zones.text
    end = stopped.address("returns_over_dead")
    stopped.hand_over()
    command = ["gdb", "-nx", "-batch", "-ex", "set backtrace past-main on", "-p", str(stopped.pid)]
    for name, value in (("agent_low", low), ("agent_high", high), ("walk_end", end)):
        command += ["-ex", f"set ${name} = {value:#x}"]
    command += ["-ex", f"source {GDB_SCRIPT}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout + done.stderr
    result = json.loads(lines[0].removeprefix("RESULT "))
    assert result["agent"] > 500
    assert result["other"] > 100
    assert result["wrong"] == []
