"""R25, R27: the zones are one explicit table, complete and consistent, and the agent's own code is never hooked."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shadowgraph.agent.inject import AGENT_PATH
from shadowgraph.agent.zones import SITE_RETURN, SITE_STRIDE, ZONES, Standing, Zone, ZoneTable
from shadowgraph.image import Reason, open_image, read_functions
from shadowgraph.image.names import AGENT_SONAME
from shadowgraph.ops.selection import Selection
from shadowgraph.patch import TRAMPOLINE_SIZE, PatchKind, trampoline_code
from shadowgraph.stack import shadow
from tests.support.build import PROGRAMS, build
from tests.support.recording import environment
from tests.support.stopped import Stopped

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def stopped() -> Iterator[Stopped]:
    with Stopped(build(PROGRAMS / "stack_paths.c", "now"), selection=Selection(everything=True)) as program:
        yield program


@pytest.fixture(scope="module")
def table(stopped: Stopped) -> ZoneTable:
    assert stopped.unwinder.zones is not None
    return stopped.unwinder.zones


def defined(name: str) -> int:
    """A number that the agent's header defines."""
    header = (ROOT / "native" / "agent" / "state.h").read_text()
    found = re.search(rf"#define {name} (-?\d+)", header)
    assert found is not None, name
    return int(found.group(1)) % (1 << 64)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SG_STRIDE", SITE_STRIDE),
        ("SG_SITE_RETURN", SITE_RETURN),
        ("FRAME_ORIGINAL", shadow.ORIGINAL),
        ("FRAME_TARGET", shadow.TARGET),
        ("FRAME_SLOT", shadow.SLOT),
        ("FRAME_SITE", shadow.SITE),
        ("FRAME_FUNCTION", shadow.FUNCTION),
        ("SG_SLOT_FREE", shadow.SLOT_FREE),
        ("SG_SLOT_START", shadow.SLOT_START),
        ("SG_SLOT_LAST_MARK", shadow.LAST_MARK),
    ],
)
def test_the_agent_s_numbers_are_known(name: str, value: int) -> None:
    assert defined(name) == value


def test_every_zone_has_a_row() -> None:
    assert set(ZONES) == set(Zone)
    assert all(row.caller_in_slot or row.site_in_slot for row in ZONES.values())


def test_the_agent_s_text_is_divided_without_gaps_or_overlaps(table: ZoneTable) -> None:
    bounds = sorted([*table.ranges, (table.sites, table.sites + SITE_STRIDE * table.frame_count, Zone.SITE_CALLING)])
    for (_, high, _), (low, _, _) in itertools.pairwise(bounds):
        assert high <= low
    for low, high, zone in table.ranges:
        assert table.text[0] <= low < high <= table.text[1]
        assert table.place(low).zone is zone
        assert table.place(high - 1).zone is zone
        assert table.place(high).zone is not zone


@pytest.mark.parametrize("site", [0, 1, 31, -1])
@pytest.mark.parametrize(
    ("offset", "zone"),
    [
        (0, Zone.SITE_CALLING),
        (SITE_RETURN - 1, Zone.SITE_CALLING),
        (SITE_RETURN, Zone.SITE_RETURNED),
        (63, Zone.SITE_RETURNED),
    ],
)
def test_sites(table: ZoneTable, site: int, offset: int, zone: Zone) -> None:
    number = site % table.frame_count
    address = table.sites + SITE_STRIDE * number + offset
    assert table.place(address).zone is zone
    assert table.frame_of_site(address) == table.frames + SITE_STRIDE * number
    assert table.is_site_return(address) == (offset == SITE_RETURN)


def test_beyond_the_agent_there_is_none(table: ZoneTable) -> None:
    assert not table.is_site_return(table.sites + SITE_STRIDE * table.frame_count + SITE_RETURN)
    assert table.place(table.text[1]).zone is Zone.OUTSIDE
    assert table.place(table.text[0] - 1).zone is Zone.OUTSIDE


def test_each_thunk_stands_for_its_function(stopped: Stopped, table: ZoneTable) -> None:
    assert stopped.process is not None
    looked_at = 0
    for hooks in stopped.process.hooks:
        step = max(1, len(hooks.thunks.pc_map) // 2000)
        for row in hooks.thunks.pc_map[::step]:
            place = table.place(int(row["thunk"]))
            in_head = int(row["thunk"]) < int(hooks.thunks.body[row["function"]])
            assert place.zone is (Zone.HEAD if in_head else Zone.BODY)
            assert (place.original, place.pushed) == (int(row["original"]), int(row["pushed"]))
            assert place.function is not None
            assert (place.function.hooks, place.function.index) == (hooks, int(row["function"]))
            looked_at += 1
    assert looked_at > 1000


def test_each_jump_stands_for_the_entry_of_its_function(stopped: Stopped, table: ZoneTable) -> None:
    assert stopped.process is not None
    for hooks in stopped.process.hooks:
        thunks = hooks.thunks
        jumps = np.flatnonzero(thunks.kind == PatchKind.JUMP)
        for index in jumps[:: max(1, len(jumps) // 500)].tolist():
            address, size = int(thunks.patch_address[index]), int(thunks.patch_size[index])
            place = table.place(address)
            assert place.zone is Zone.JUMP
            assert ZONES[place.zone].standing is Standing.ENTRY
            assert place.function is not None
            assert place.function.index == int(thunks.patched[index])
            assert place.original == place.function.entry
            assert table.place(address + size - 1).zone is Zone.JUMP
            record = table.hooked(place.function.record)
            assert record is not None
            assert (record.hooks, record.index) == (hooks, place.function.index)


def test_each_trampoline_stands_for_the_entry_of_its_function(stopped: Stopped, table: ZoneTable) -> None:
    assert stopped.process is not None
    looked_at = 0
    for hooks in stopped.process.hooks:
        for index in np.flatnonzero(hooks.thunks.trampoline).tolist():
            address = int(hooks.thunks.trampoline[index])
            place = table.place(address)
            assert place.zone is Zone.HEAD
            assert place.function is not None
            assert (place.function.hooks, place.function.index) == (hooks, index)
            assert place.original == place.function.entry
            assert table.place(address - 1).function != place.function
            assert stopped.memory.read(address, TRAMPOLINE_SIZE) == trampoline_code(int(hooks.thunks.thunk[index]))
            looked_at += 1
    assert looked_at > 0


def test_a_thread_among_displaced_instructions_is_moved_to_their_copies(stopped: Stopped, table: ZoneTable) -> None:
    assert stopped.process is not None
    moved = 0
    for hooks in stopped.process.hooks:
        rows = hooks.thunks.pc_map
        rows = rows[rows["starts"]][:: max(1, len(rows) // 1000)]
        for row in rows:
            original, first = int(row["original"]), int(hooks.thunks.body[row["function"]])
            copy = table.copy_of(original)
            if int(row["thunk"]) == first:
                continue
            assert copy is not None
            assert table.place(copy).original == original
            assert table.place(copy).zone is Zone.BODY
            moved += 1
        for entry in hooks.thunks.patch_address[hooks.thunks.patch_size == 5][:100].tolist():
            function = table.place(entry).function
            assert function is not None
            if function.entry == entry:
                assert table.copy_of(entry) is None
    assert moved > 100


def test_no_hook_touches_the_agent(stopped: Stopped, table: ZoneTable) -> None:
    """R27, with all functions of all modules asked for."""
    assert stopped.process is not None
    agent = stopped.process.agent.module
    for hooks in stopped.process.hooks:
        inside = (hooks.thunks.patch_address >= np.uint64(agent.low)) & (
            hooks.thunks.patch_address < np.uint64(agent.high)
        )
        assert not inside.any()
        assert hooks.module.path != str(AGENT_PATH)


@pytest.mark.parametrize(
    "options", [["-m", "agent.so"], ["-f", "agent.so!sg_*"], ["-f", "main", "-m", "agent-gs.so"], ["-m", AGENT_SONAME]]
)
def test_a_request_for_the_agent_is_refused_with_the_reason(options: list[str], tmp_path: Path) -> None:
    program = str(build(PROGRAMS / "stack_rewriter.c", "o2"))
    command = [sys.executable, "-m", "shadowgraph.cli.main", "record", "-q", "-o", str(tmp_path / "x.sgt"), *options]
    done = subprocess.run([*command, "--", program], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"shadowgraph: {options[-1]}: nothing of ")
    assert done.stderr.endswith("it belongs to the tracer's own agent\n")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_program_s_own_library_may_be_called_like_the_agent(tmp_path: Path) -> None:
    library, program = tmp_path / AGENT_PATH.name, tmp_path / "program"
    subprocess.run(["gcc", "-shared", "-xc", "-", "-o", library], input=b"int f(void) { return 3; }", check=True)
    source = b"int f(void); int main(void) { return f(); }"
    subprocess.run(["gcc", "-xc", "-", "-xnone", library, "-o", program], input=source, check=True)
    command = [
        sys.executable,
        "-m",
        "shadowgraph.cli.main",
        "record",
        "-o",
        tmp_path / "x.sgt",
        "-f",
        f"{library.name}!f",
    ]
    done = subprocess.run([*command, "--", program], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "1 call of 1 function in" in done.stderr


@pytest.mark.parametrize("name", ["agent.so", "agent-gs.so"])
def test_each_function_of_the_agent_is_said_to_be_one(name: str) -> None:
    functions = read_functions(open_image(AGENT_PATH.with_name(name)))
    assert len(functions) > 10
    assert set(functions.refused.tolist()) == {Reason.SHADOWGRAPH_AGENT}
