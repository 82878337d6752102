"""Memory for trampolines: the places that jumps lead to which share bytes with a call (patch/overlaps.py)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from shadowgraph.agent.kept import keep
from shadowgraph.errors import StartError
from shadowgraph.patch import TRAMPOLINE_SIZE, ModulePlan, ThunkBlock, trampoline_code
from shadowgraph.target.memory import Mapping, read_mappings
from shadowgraph.target.remote import RemoteThread
from shadowgraph.target.shadow_stack import has_shadow_stack

__all__ = ["Surroundings", "map_trampolines", "occupied", "read_surroundings", "trampoline_pages", "write_trampolines"]

_PAGE = 4096
_SYS_MMAP, _SYS_MPROTECT, _SYS_MUNMAP = 9, 10, 11
_READ, _WRITE, _EXEC = 1, 2, 4
_PRIVATE_ANONYMOUS_FIXED = 0x02 | 0x20 | 0x100000  # MAP_FIXED_NOREPLACE
_START_BRK = 47 - 3  # in /proc/PID/stat, counted from the field behind the name (proc(5))


@dataclass(frozen=True)
class Surroundings:
    """What a process has that matters to displaced calls.

    ``occupied`` is where no trampoline may be put (sorted, disjoint), ``has_shadow_stack`` whether returns are checked.
    """

    occupied: list[tuple[int, int]]
    has_shadow_stack: bool


def read_surroundings(tid: int, pid: int, mappings: list[Mapping] | None = None) -> Surroundings:
    """The surroundings in a process, ``tid`` being one of its threads. ``mappings``: its own, or those to be."""
    checked = has_shadow_stack(tid)
    taken = read_mappings(pid) if mappings is None else mappings
    return Surroundings(occupied(taken, None if checked else heap_start(pid)), checked)


def occupied(mappings: list[Mapping], heap: int | None) -> list[tuple[int, int]]:
    """What is mapped, and where the heap may grow that begins at ``heap``.

    Without ``heap`` that is free, too: brk() will fail where the first trampoline lies, and malloc go on with mmap().
    """
    ranges = [(mapping.start, mapping.end) for mapping in mappings]
    if heap is not None:
        above = min((m.start for m in mappings if m.start > heap and m.path != "[heap]"), default=heap)
        ranges.append((heap, above))
    return _merged(ranges)


def heap_start(pid: int) -> int:
    """Where the heap begins, or will begin, that brk() grows."""
    with open(f"/proc/{pid}/stat", errors="surrogateescape") as file:
        return int(file.read().rpartition(")")[2].split()[_START_BRK])


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def map_trampolines(thread: RemoteThread, plan: ModulePlan, load_bias: int) -> None:
    """Writable memory for the trampolines of a plan; FileExistsError, and nothing mapped, where that is taken."""
    pages = trampoline_pages(plan, load_bias)
    for index, (start, size) in enumerate(pages):
        try:
            got = thread.system_call(_SYS_MMAP, start, size, _READ | _WRITE, _PRIVATE_ANONYMOUS_FIXED, -1, 0)
        except FileExistsError:
            for mapped in pages[:index]:
                thread.system_call(_SYS_MUNMAP, *mapped)
            raise
        if got != start:
            raise StartError(f"{plan.path}: memory for its trampolines was not mapped where it was asked for")


def trampoline_pages(plan: ModulePlan, load_bias: int) -> list[tuple[int, int]]:
    """Where the trampolines of a plan need memory: start and size."""
    return _runs((plan.trampoline[plan.trampoline != 0] + load_bias).tolist())


def write_trampolines(thread: RemoteThread, thunks: ThunkBlock, table: int) -> None:
    """Let the trampolines lead to their thunks, and be executable; they are blocks of their own in the ``table``."""
    places = [
        (place, thunk) for place, thunk in zip(thunks.trampoline.tolist(), thunks.thunk.tolist(), strict=True) if place
    ]
    for place, thunk in places:
        thread.memory.write(place, trampoline_code(thunk))
    for start, size in _runs([place for place, _ in places]):
        thread.system_call(_SYS_MPROTECT, start, size, _READ | _EXEC)
        keep(thread.memory, table, {"base": start, "size": size, "patches": start, "moves": start, "tables_size": size})


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """The pages that trampolines at these places lie on, as (start, size) of neighbours."""
    pages = sorted({page for place in places for page in (place // _PAGE, (place + TRAMPOLINE_SIZE - 1) // _PAGE)})
    cuts = [0, *(index for index, (one, other) in enumerate(pairwise(pages), 1) if other != one + 1), len(pages)]
    return [(pages[low] * _PAGE, (high - low) * _PAGE) for low, high in pairwise(cuts) if high > low]
