"""What controllers have put into a process, written down in the process itself, and taking it out again.

The agent's table sg_kept (native/include/shadowgraph/arena.h) names each block of thunks with the patches that lead
there. Whoever finds the agent in a process can restore its code by that table: the controller that wrote it, or a later
one when that is dead; in a forked child, too, which has a table of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.exchange import WIDTH, Exchange
from shadowgraph.errors import UsageError
from shadowgraph.patch import PatchKind, ThunkBlock
from shadowgraph.target.memory import Memory

__all__ = [
    "Kept",
    "Moves",
    "blocks_in_use",
    "forget",
    "hooked_functions",
    "keep",
    "moves_into",
    "read_kept",
    "tables_of",
    "take_out",
]

_JMP = 0xE9
_TELLING = 4  # patches of so many bytes are not where they are by chance


@dataclass(frozen=True)
class Moves:
    """Where threads go on that stand at certain addresses, and by how much their stack pointers grow then."""

    targets: dict[int, tuple[int, int]]

    def of(self, pc: int) -> tuple[int, int] | None:
        """The new pc and the growth of rsp; None where a thread may stay."""
        return self.targets.get(pc)


def moves_into(thunks: ThunkBlock, written: npt.NDArray[np.bool_]) -> Moves:
    """For threads among displaced instructions when the jumps are ``written`` (bool[p]): on to the copies.

    The first instruction of a function is where the jump is, or is left alone: a thread there makes a call.
    """
    rows = thunks.pc_map
    hooked = np.zeros(len(thunks.chosen), np.bool_)
    hooked[thunks.patched[written]] = True
    first = rows["thunk"] == thunks.body[rows["function"]]
    moved = rows[rows["starts"] & ~first & hooked[rows["function"]]]
    pairs = zip(moved["original"].tolist(), moved["thunk"].tolist(), strict=True)
    return Moves({original: (copy, 0) for original, copy in pairs})


def tables_of(thunks: ThunkBlock) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """The patches and moves (struct sg_patch, sg_move) by which a block of thunks is taken out of use again.

    Threads may stay in thunks and run out of them, with one exception: a call made from its place needs four bytes of
    the original code. Where such a call is restored, threads are moved out of the body back to the original, and the
    body becomes a jump there, for calls that have been entered and have not got to the body yet.
    """
    patches = np.zeros(len(thunks.patch_address), layout.patch_dtype)
    patches["address"], patches["size"] = thunks.patch_address, thunks.patch_size
    patches["original"], patches["replacement"] = thunks.original, thunks.replacement
    patches["number"] = thunks.records["id"][thunks.patched]
    jumps = np.flatnonzero(thunks.kind == PatchKind.JUMP)
    last = np.zeros(len(thunks.records), np.int64)
    last[thunks.patched[jumps]] = jumps  # of several, the one that leads to the others
    patches["is_entry"][last[thunks.patched[jumps]]] = 1
    in_place = thunks.kind == PatchKind.CALL
    owners = np.array(sorted({*thunks.patched[in_place].tolist()}), np.int64)
    moves = _moves_out(thunks, owners)
    inner = [_start_before(moves, int(address)) for address in thunks.patch_address[in_place].tolist()]
    moves += [(int(a), to, 0) for a, to in zip(thunks.patch_address[in_place].tolist(), inner, strict=True)]
    moves += _moves_off_jumps(thunks) + _moves_off_trampolines(thunks)
    bodies = np.zeros(len(owners), layout.patch_dtype)
    for row, owner in zip(bodies, owners.tolist(), strict=True):
        body = int(thunks.body[owner])
        entry = next(to for at, to, _ in moves if at == body)
        row["address"], row["size"] = body, WIDTH
        row["replacement"] = np.frombuffer(thunks.code, np.uint8, WIDTH, body - _base(thunks))
        row["original"][0] = _JMP
        row["original"][1:] = np.frombuffer((entry - body - WIDTH).to_bytes(4, "little", signed=True), np.uint8)
    table = np.array([(a, to & 0xFFFF_FFFF_FFFF_FFFF, grows) for a, to, grows in moves], layout.move_dtype)
    return np.concatenate([patches, bodies]), table


def _base(thunks: ThunkBlock) -> int:
    return int(thunks.thunk[0])


def _moves_out(thunks: ThunkBlock, owners: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    rows = thunks.pc_map
    body = rows[np.isin(rows["function"], owners) & (rows["thunk"] >= thunks.body[rows["function"]])]
    columns = (body["thunk"].tolist(), body["original"].tolist(), body["pushed"].tolist())
    return list(zip(*columns, strict=True))


def _start_before(moves: list[tuple[int, int, int]], address: int) -> int:
    """The call instruction that ends with the four bytes at an address."""
    return max(original for _, original, _ in moves if original <= address)


def _moves_off_jumps(thunks: ThunkBlock) -> list[tuple[int, int, int]]:
    """Jumps that others lead to by short jumps lie in borrowed bytes: a thread there has begun a call already."""
    required = thunks.requires[(thunks.requires >= 0) & (thunks.patch_size == 2)]
    moves = []
    for index in sorted({*required.tolist()}):
        address = int(thunks.patch_address[index])
        if thunks.replacement[index, 0] == _JMP and thunks.patch_size[index] == WIDTH:
            distance = int.from_bytes(thunks.replacement[index, 1:].tobytes(), "little", signed=True)
            moves.append((address, address + WIDTH + distance, 0))
    return moves


def _moves_off_trampolines(thunks: ThunkBlock) -> list[tuple[int, int, int]]:
    """A thread at a trampoline has done no more than jump there: back to the entry, so that the memory may go."""
    used = np.flatnonzero(thunks.trampoline)
    first = np.searchsorted(thunks.pc_map["thunk"], thunks.body[used])
    entries = thunks.pc_map["original"][first]
    return [(int(at), int(to), 0) for at, to in zip(thunks.trampoline[used].tolist(), entries.tolist(), strict=True)]


@dataclass(frozen=True)
class Kept:
    """One block of the table: row ``index`` of it, where it lies and what was changed for it.

    ``mappings`` are the two that it has: start and size.
    """

    index: int
    base: int
    size: int
    mappings: tuple[tuple[int, int], tuple[int, int]]
    flags: int
    patches: npt.NDArray[np.void]
    moves: Moves

    @property
    def is_in_use(self) -> bool:
        """Whether its patches have not been taken out."""
        return not self.flags & layout.KEPT_TAKEN_OUT


def keep(memory: Memory, table: int, entry: dict[str, int]) -> None:
    """Write a block into the table at an address, before its patches are written."""
    rows = _read_table(memory, table)
    free = np.flatnonzero(rows["size"] == 0)
    if not len(free):
        raise UsageError(f"process {memory.pid}: more than {len(rows)} modules are hooked; choose fewer with -m or -f")
    row = np.zeros(1, layout.kept_dtype)
    for name, value in entry.items():
        row[name] = value
    memory.write(table + int(free[0]) * layout.kept_dtype.itemsize, row.tobytes())


def read_kept(memory: Memory, table: int) -> list[Kept]:
    """All blocks of the table."""
    rows = _read_table(memory, table)
    return [_read(memory, index, rows[index]) for index in np.flatnonzero(rows["size"]).tolist()]


def _read_table(memory: Memory, table: int) -> npt.NDArray[np.void]:
    data = memory.read(table, layout.KEPT_LIMIT * layout.kept_dtype.itemsize)
    return np.frombuffer(data, layout.kept_dtype)


def _read(memory: Memory, index: int, row: np.void) -> Kept:
    patches = _rows(memory, int(row["patches"]), int(row["patch_count"]), layout.patch_dtype)
    moves = _rows(memory, int(row["moves"]), int(row["move_count"]), layout.move_dtype)
    columns = (moves["from"].tolist(), moves["to"].tolist(), moves["grows"].tolist())
    targets = {at: (to, grows) for at, to, grows in zip(*columns, strict=True)}
    base, size = int(row["base"]), int(row["size"])
    mappings = ((base, size), (int(row["patches"]), int(row["tables_size"])))
    return Kept(index, base, size, mappings, int(row["flags"]), patches, Moves(targets))


def _rows(memory: Memory, address: int, count: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    return np.frombuffer(memory.read(address, count * dtype.itemsize) if count else b"", dtype)


def blocks_in_use(memory: Memory, table: int) -> set[int]:
    """Where the blocks of thunks begin that a process has, and that have not been taken out of use."""
    rows = _in_use(memory, table)
    return set(rows["base"].tolist())


def _in_use(memory: Memory, table: int) -> npt.NDArray[np.void]:
    rows = _read_table(memory, table)
    found: npt.NDArray[np.void] = rows[(rows["size"] != 0) & (rows["flags"] & layout.KEPT_TAKEN_OUT == 0)]
    return found


def hooked_functions(memory: Memory, table: int) -> dict[int, int]:
    """The number of each function that is hooked in this process, by its address: those whose patches are all there.

    What is kept of a module that has been unloaded is no matter, whatever lies at its place by now.
    """
    found: dict[int, int] = {}
    for row in _in_use(memory, table):
        patches = _rows(memory, int(row["patches"]), int(row["patch_count"]), layout.patch_dtype)
        patches = patches[patches["number"] != 0]
        exchange = Exchange(patches["address"], patches["size"])
        exchange.read(memory)
        there = exchange.holds(patches["replacement"])
        entries = patches[there & (patches["is_entry"] != 0)]
        entries = entries[~np.isin(entries["number"], patches["number"][~there])]
        found.update(zip(entries["address"].tolist(), entries["number"].tolist(), strict=True))
    return found


def take_out(memory: Memory, table: int, blocks: list[Kept]) -> int:
    """Put back what the patches of these blocks have replaced; every thread of the process must stand still.

    Returns how many bytes somebody else has changed since: those are left alone. What has been unloaded is no matter.
    """
    foreign = 0
    for kept in blocks:
        exchange = Exchange(kept.patches["address"], kept.patches["size"])
        exchange.read(memory)
        ours = exchange.holds(kept.patches["replacement"])
        whole = kept.patches["size"] >= _TELLING
        in_thunks = (kept.patches["address"] >= kept.base) & (kept.patches["address"] < kept.base + kept.size)
        if not (ours & whole & ~in_thunks).any():
            ours &= in_thunks  # another module, or none, is there: what looks like ours are chance bytes
        restored = exchange.holds(kept.patches["original"])
        foreign += int((~ours & ~restored & exchange.present).sum()) if (ours & ~in_thunks).any() else 0
        exchange.write(memory, kept.patches["original"], ours)
        flags = (kept.flags | layout.KEPT_TAKEN_OUT).to_bytes(4, "little")
        memory.write(_field(table, kept.index, "flags"), flags)
    return foreign


def _field(table: int, index: int, name: str) -> int:
    fields = layout.kept_dtype.fields
    assert fields is not None
    return table + index * layout.kept_dtype.itemsize + fields[name][1]


def forget(memory: Memory, table: int, kept: Kept) -> None:
    """Take a block off the table: its memory is unmapped."""
    memory.write(table + kept.index * layout.kept_dtype.itemsize, bytes(layout.kept_dtype.itemsize))
