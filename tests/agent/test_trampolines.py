"""Where trampolines may be put in a process, and what is asked of it for them."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field

import numpy as np
import pytest

from shadowgraph.agent.trampolines import heap_start, map_trampolines, occupied, read_surroundings, trampoline_pages
from shadowgraph.patch import TRAMPOLINE_SIZE, plan_module, share_bytes
from shadowgraph.target.memory import Mapping, read_mappings
from tests.support.first_calls import FIRST_CALLS, SHARING
from tests.support.hook_bench import Bench, build

PROGRAM = Mapping(0x400000, 0x500000, "r-xp", 0, "/program")
HEAP = Mapping(0x900000, 0x940000, "rw-p", 0, "[heap]")
LIBRARY = Mapping(0x7F00_0000_0000, 0x7F00_0010_0000, "r-xp", 0, "/library")


def test_where_the_heap_may_grow_is_occupied() -> None:
    taken = occupied([PROGRAM, HEAP, LIBRARY], 0x900000)
    assert taken == [(0x400000, 0x500000), (0x900000, LIBRARY.end)]


def test_a_heap_that_has_not_begun_yet_may_grow_too() -> None:
    assert occupied([PROGRAM, LIBRARY], 0x800000) == [(0x400000, 0x500000), (0x800000, LIBRARY.end)]


def test_the_heap_s_room_is_given_up_where_calls_are_checked() -> None:
    assert occupied([PROGRAM, HEAP, LIBRARY], None) == [(m.start, m.end) for m in (PROGRAM, HEAP, LIBRARY)]


def test_what_is_occupied_is_sorted_and_disjoint() -> None:
    inside = Mapping(0x920000, 0x930000, "rw-p", 0, "[heap]")
    taken = occupied([LIBRARY, HEAP, inside, PROGRAM], 0x900000)
    assert taken == sorted(taken)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(taken))


def test_the_heap_of_a_real_process_lies_where_it_says() -> None:
    heap = next((m for m in read_mappings(os.getpid()) if m.path == "[heap]"), None)
    if heap is not None:
        assert heap_start(os.getpid()) == heap.start
    surroundings = read_surroundings(os.getpid(), os.getpid())
    assert any(start <= heap_start(os.getpid()) < end for start, end in surroundings.occupied)


@dataclass
class Kernel:
    """Stands in for a stopped thread: it maps what it is asked for, unless that is ``taken``."""

    taken: set[int] = field(default_factory=set)
    mapped: dict[int, int] = field(default_factory=dict)

    def system_call(self, number: int, *arguments: int) -> int:
        if number == 11:
            assert self.mapped.pop(arguments[0]) == arguments[1]
            return 0
        if arguments[0] in self.taken:
            raise FileExistsError
        self.mapped[arguments[0]] = arguments[1]
        return arguments[0]


def test_trampolines_are_mapped_all_or_none() -> None:
    bench = Bench(build(FIRST_CALLS, "first_calls_pie"))
    rows = np.array([bench.row(name) for name in SHARING])
    bias = 0x5600_0000_0000
    plan = share_bytes(plan_module(bench.image, bench.functions), rows, bias, [])
    pages = trampoline_pages(plan, bias)
    places = (plan.trampoline[rows] + bias).tolist()
    assert len(pages) > 1
    for place in places:
        assert any(start <= place and place + TRAMPOLINE_SIZE <= start + size for start, size in pages)
    kernel = Kernel()
    map_trampolines(kernel, plan, bias)  # type: ignore[arg-type]
    assert kernel.mapped == dict(pages)
    full = Kernel({pages[-1][0]})
    with pytest.raises(FileExistsError):
        map_trampolines(full, plan, bias)  # type: ignore[arg-type]
    assert full.mapped == {}
