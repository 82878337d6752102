"""The moment that counts as 0: before the first call, when all that recording needs has been done."""

from __future__ import annotations

import json
from pathlib import Path

import shadowgraph
from shadowgraph.trace.clock import fit_clock
from tests.attach.conftest import built
from tests.support.attached import Running
from tests.support.build import compile_files, scratch_folder
from tests.support.live import SHADOWGRAPH
from tests.support.manners import recorded, run

LOADED = """
#include <time.h>
long long loaded;
long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
__attribute__((constructor)) static void load(void) { loaded = now(); }
"""
MAIN = """
#include <stdio.h>
extern long long loaded;
long long now(void);
int main(void) { printf("%lld %lld\\n", loaded, now()); return 0; }
"""
PAIRS = [
    {"tick": 1_000, "monotonic_ns": 50_000, "realtime_ns": 900_000},
    {"tick": 9_000, "monotonic_ns": 52_000, "realtime_ns": 902_000},
]


def test_it_is_the_first_look_at_the_clock_where_nothing_else_is_known() -> None:
    clock = fit_clock(PAIRS)
    assert (clock.nanoseconds(1_000), clock.nanoseconds(9_000)) == (0, 2_000)
    assert (clock.start_monotonic_ns, clock.start_realtime_ns) == (50_000, 900_000)


def test_it_may_be_later_and_the_rate_is_that_of_all_the_time() -> None:
    clock = fit_clock(PAIRS, begin=5_000)
    assert (clock.nanoseconds(5_000), clock.nanoseconds(9_000)) == (0, 1_000)
    assert (clock.start_monotonic_ns, clock.start_realtime_ns) == (51_000, 901_000)


def first_start(trace: Path) -> tuple[int, int]:
    """When the first call of a trace began, and from when on it counts, by CLOCK_MONOTONIC."""
    with shadowgraph.open(trace) as opened:
        return min(opened.calls["start_ns"].to_pylist()), opened.metadata["start_monotonic_ns"]


def test_of_a_program_it_is_when_all_is_hooked_and_nothing_was_called() -> None:
    folder = Path(scratch_folder())
    (folder / "early.c").write_text(LOADED)
    (folder / "late.c").write_text(MAIN)
    library, program, trace = folder / "libearly.so", folder / "late", folder / "clock.sgt"
    compile_files("gcc", [folder / "early.c"], library, ("-shared", "-fPIC"))
    compile_files("gcc", [folder / "late.c", library], program, (f"-Wl,-rpath,{folder}",))
    loaded, begun = map(int, recorded([str(program)], "--force", trace=trace).output.split())
    first, zero = first_start(trace)
    # The loader has run before anything can be hooked, and long after the recorder has looked at the clock first.
    assert loaded < zero <= zero + first < begun
    assert "begin" not in json.loads((trace / "manifest.json").read_text())


def test_a_process_that_was_attached_to_has_no_call_before_it() -> None:
    trace = Path(scratch_folder()) / "clock.sgt"
    words = ["record", "-q", "--force", "-o", str(trace), "--for", "100ms"]
    with Running([built("attach_busy"), "1"]) as running:
        for _ in range(2):  # the second time its functions are hooked already
            assert run([*SHADOWGRAPH, *words, "--pid", str(running.pid)]).status == 0
            assert first_start(trace)[0] >= 0
