"""What an injected agent has made of a process: its tables, its mappings, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shadowgraph.agent import layout
from shadowgraph.agent.inject import AGENT_PATH, Agent, Settings, inject
from shadowgraph.agent.rings import Rings
from shadowgraph.agent.zones import SITE_RETURN, SITE_STRIDE
from shadowgraph.errors import StartError
from shadowgraph.target import launch, ptrace
from shadowgraph.target.memory import Memory, read_mappings
from shadowgraph.target.modules import read_modules
from shadowgraph.target.remote import RemoteThread
from tests.support.manners import program
from tests.support.stopped import Stopped

NATIVE = Path(__file__).resolve().parents[2] / "native"
SETTINGS = Settings(
    policy=layout.POLICY_DROP, segment_size=8192, segments=33, threads=17, chunks=65, minimal_ticks=7, depth_limit=9
)


@pytest.fixture
def entered() -> Iterator[Stopped]:
    """A program at its entry point, with the agent in it and its functions hooked."""
    with Stopped(Path(program("manners_state")), settings=SETTINGS) as stopped:
        yield stopped


def agent_of(stopped: Stopped) -> Agent:
    assert stopped.process is not None
    return stopped.process.agent


def test_the_tables_lie_one_behind_the_other_and_hold_as_many_entries_as_were_asked_for(entered: Stopped) -> None:
    arena = agent_of(entered).arena
    header, rings = arena.header, Rings(arena, 0)
    assert header["magic"] == layout.ARENA_MAGIC
    assert [len(table) for table in (arena.threads, rings.segments, arena.chunks)] == [17, 33, 65]
    assert len(arena.open_calls) == 65 * layout.BLOCK_FRAMES
    assert rings.data.shape == (33, 8192)
    tables = [
        ("threads_at", 17 * layout.shared_thread_dtype.itemsize),
        ("rings_at", layout.RECORDERS * layout.rings_dtype.itemsize),
        ("segments_at", 33 * layout.segment_dtype.itemsize),
        ("events_at", int(header["events"]) * layout.event_dtype.itemsize),
        ("chunks_at", 65 * layout.chunk_dtype.itemsize),
        ("open_at", 65 * layout.BLOCK_FRAMES * layout.open_dtype.itemsize),
        ("data_at", 33 * 8192),
    ]
    end = layout.arena_dtype.itemsize
    for name, size in tables:
        start = int(header[name])
        assert start >= end and start % 4096 == 0, name
        end = start + size
    assert end <= int(header["size"]) <= end + 4096


def test_settings_have_arrived(entered: Stopped) -> None:
    header, rings = agent_of(entered).arena.header, Rings(agent_of(entered).arena, 0).row
    assert (rings["policy"], rings["segment_size"], rings["recording"]) == (layout.POLICY_DROP, 8192, 1)
    assert rings["controller_pid"] == os.getpid()
    assert header["missed"] == header["dropped"] == rings["waiters"] == 0


def test_nothing_is_taken_before_a_function_is_called(entered: Stopped) -> None:
    arena = agent_of(entered).arena
    assert not arena.threads["state"].any()
    assert not Rings(arena, 0).segments["state"].any()
    assert not arena.chunks["state"].any()
    assert not Rings(arena, 0).data.any()


def test_both_sides_see_the_same_memory(entered: Stopped) -> None:
    agent = agent_of(entered)
    agent.arena.header["answered"] = 12345
    memory = entered.memory.read(agent.zones["arena"], layout.arena_dtype.itemsize)
    assert np.frombuffer(memory, layout.arena_dtype)[0]["answered"] == 12345
    mapping = next(m for m in read_mappings(entered.pid) if m.start == agent.zones["arena"])
    assert (mapping.inode, mapping.permissions) == (agent.arena.inode, "rw-s")


def test_no_memory_is_both_writable_and_executable(entered: Stopped) -> None:
    mappings = [m for m in read_mappings(entered.pid) if m.path != "[vsyscall]"]
    assert entered.process is not None and entered.process.hooks
    assert not [m for m in mappings if "w" in m.permissions and "x" in m.permissions]
    thunks = entered.process.hooks[0].thunk_base
    assert next(m for m in mappings if m.start <= thunks < m.end).permissions == "r-xp"


def test_the_program_has_no_more_files_than_before(entered: Stopped) -> None:
    run = [program("manners_state")]
    plain = subprocess.run(run, stdout=subprocess.PIPE, close_fds=False, text=True, check=True).stdout
    files = {line.split()[1] for line in plain.splitlines() if line.startswith("file ")}
    assert set(os.listdir(f"/proc/{entered.pid}/fd")) == files


def test_the_agent_is_an_object_that_the_loader_knows(entered: Stopped) -> None:
    module = next(m for m in read_modules(entered.pid) if m.path == str(AGENT_PATH))
    assert (module.base, module.high) == (agent_of(entered).module.base, agent_of(entered).module.high)
    assert module.low <= agent_of(entered).enter < module.high


def test_each_frame_has_a_site_at_the_same_distance(entered: Stopped) -> None:
    zones = agent_of(entered).zones
    count = zones["frame_count"]
    assert count == number_in("agent/state.h", "SG_FRAMES")
    for k in (0, 1, 31, 32, count // 2, count - 1):
        site, frame = zones["sites"] + k * SITE_STRIDE, zones["frames"] + k * SITE_STRIDE
        code = entered.memory.read(site, SITE_STRIDE)
        # Behind the call: mov %rcx, -40(%rsp); lea frame(%rip), %rcx (see SITE_SIGNATURE in native/agent/unwind.h).
        assert code[SITE_RETURN : SITE_RETURN + 8] == bytes.fromhex("48894c24d8488d0d")
        displacement = int.from_bytes(code[SITE_RETURN + 8 : SITE_RETURN + 12], "little", signed=True)
        assert site + SITE_RETURN + 12 + displacement == frame


def test_frames_are_small() -> None:
    """R15: what only some users need is their private data."""
    source = '#include <stdio.h>\n#include "state.h"\nint main(void) { printf("%zu", sizeof(struct sg_frame)); }\n'
    include = [f"-I{NATIVE}/agent", f"-I{NATIVE}/include"]
    program = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/var/tmp"
    path = f"{program}/frame-size-{os.getpid()}"
    try:
        subprocess.run(["gcc", "-xc", "-", "-o", path, *include], input=source, text=True, check=True)
        size = int(subprocess.run([path], capture_output=True, check=True).stdout)
    finally:
        Path(path).unlink(missing_ok=True)
    assert size == number_in("agent/state.h", "SG_STRIDE") == SITE_STRIDE == 64
    assert number_in("agent/state.h", "SG_SITE_RETURN") == SITE_RETURN


def number_in(header: str, name: str) -> int:
    found = re.search(rf"^#define {name} (\d+)", (NATIVE / header).read_text(), re.M)
    assert found, name
    return int(found[1])


def test_a_buffer_that_no_memory_is_large_enough_for_is_refused_and_the_program_is_as_it_was() -> None:
    path = program("manners_state")
    pid = launch.launch(path, [path])
    launch.run_to_entry(pid)
    before = ptrace.get_registers(pid)
    memory = Memory(pid)
    huge = Settings(segment_size=1 << 31, segments=(1 << 32) - 1)
    with (
        pytest.raises(StartError, match=rf"process {pid}: no memory could be shared with it \(.*\); try a smaller"),
        RemoteThread(pid, memory) as thread,
    ):
        inject(thread, huge, 0, 0)
    after = ptrace.get_registers(pid)
    assert bytes(after) == bytes(before)
    assert not [m for m in read_mappings(pid) if "shadowgraph" in m.path and "memfd" in m.path]
    memory.close()
    ptrace.detach(pid)
    assert os.waitpid(pid, 0)[1] == 0
