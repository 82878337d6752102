"""The thunks of chosen functions as bytes, all at once: heads, bodies, function records, and the jumps that lead there.

A block of thunks, at an address that the caller has found within ±2 GiB of the module:

    literal: .quad enter                  ; used only where the agent is out of a jump's reach
    thunk:   mov [rsp-48], r11            ; the 128 bytes below rsp belong to nobody at a function's entry (psABI 3.2.2)
             lea r11, [rip + record]      ; this function's record: record_base + 32 * k
             jmp enter                    ; direct, or through the literal
    body:    displaced instructions, re-encoded (relocate.py)
             jmp patch address + displaced

Thunks begin at multiples of 16. Of the original code only the jump itself changes: bytes behind it that belonged to a
displaced instruction stay, since nobody executes them (see collisions.py) and less is to be put back. A function with a
short jump has two patches: its hole, which holds the jump of five bytes, and the two bytes that lead there. Jumps that
are led to a copy have one of four bytes each, and so have calls that are made from their place (relocate.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.patches import fits, little_endian, make_patches
from shadowgraph.patch.plan import ModulePlan
from shadowgraph.patch.relocate import JUMP_SIZE, FixupKind, Recipe

__all__ = ["HEAD_SIZE", "PC_ROW", "RECORD", "ThunkBlock", "encode_thunks", "thunk_space"]

Indexes = Sequence[int] | npt.NDArray[np.integer]
_Ints = npt.NDArray[np.int64]

# struct sg_function of native/include/shadowgraph/arena.h; a test holds the two equal.
RECORD = np.dtype([("body", "<u8"), ("id", "<u4"), ("flags", "<u4"), ("values", "<u8"), ("variant", "<u8")])

# One instruction of a thunk. A thread standing at ``thunk`` stands, in truth, at ``original``, with ``pushed`` bytes
# of a displaced call's return address on the stack already. ``starts`` marks where a thread that stands at
# ``original`` may go on.
PC_ROW = np.dtype([("thunk", "<u8"), ("original", "<u8"), ("function", "<u4"), ("pushed", "u1"), ("starts", "?")])

_ALIGNMENT = 16
_LITERAL_SIZE = 16
HEAD_SIZE = 18
_SAVE_R11 = b"\x4c\x89\x5c\x24\xd0"
_LEA_R11 = b"\x4c\x8d\x1d"
_LEA_END = len(_SAVE_R11) + len(_LEA_R11) + 4
_JMP_DIRECT, _JMP_LITERAL = b"\xe9", b"\xff\x25"
_FILLER = 0xCC


@dataclass(frozen=True)
class ThunkBlock:
    """What to write where, for m functions. Addresses are those of the target process.

    ``code``          bytes for ``thunk_base``
    ``records``       RECORD[m], for ``record_base``
    ``chosen``        int64[m], rows of the plan, in the order of the records
    ``thunk``, ``body``  uint64[m], where each thunk and its body lie
    ``trampoline``    uint64[m], where a trampoline that leads there must be (overlaps.py), else 0
    ``patch_address`` uint64[p], where to write; ``patched`` int64[p] which of the m it belongs to
    ``patch_size``    uint8[p], how many bytes change there: 5, 2 for a short jump, 4 for other changes; 1 to 4 for a
                      jump that shares the rest of its bytes with a call, which is a patch of its own
    ``kind``          uint8[p], :class:`PatchKind`
    ``original``      uint8[p, 5], what the file has there
    ``replacement``   uint8[p, 5], the jump; bytes from ``patch_size`` on are as in ``original``
    ``requires``      int64[p], the patch that must be in place before this one is right (and gone after it), or −1
    ``pc_map``        PC_ROW[…], sorted by ``thunk``; ``function`` is an index into the m

    Those of the m that cannot reach what they need from where they are, or whose lender is missing, have no patch
    (``out_of_reach``, int64).
    """

    code: bytes
    records: npt.NDArray[np.void]
    chosen: _Ints
    thunk: npt.NDArray[np.uint64]
    body: npt.NDArray[np.uint64]
    trampoline: npt.NDArray[np.uint64]
    patch_address: npt.NDArray[np.uint64]
    patched: _Ints
    patch_size: npt.NDArray[np.uint8]
    kind: npt.NDArray[np.uint8]
    requires: _Ints
    original: npt.NDArray[np.uint8]
    replacement: npt.NDArray[np.uint8]
    pc_map: npt.NDArray[np.void]
    out_of_reach: _Ints

    def usable(self, differs: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """bool[p]: what may be written if those of ``differs`` (bool[p]) may not.

        A function gets all of its patches or none: a call in its place without the jump would be a call to anywhere.
        """
        left_out = np.zeros(len(self.records), np.bool_)
        left_out[self.patched[differs]] = True
        needing = np.flatnonzero(self.requires >= 0)
        owner, required = self.patched[needing], self.patched[self.requires[needing]]
        count = -1
        while count != (count := int(left_out.sum())):
            left_out[owner[left_out[required]]] = True
        return ~left_out[self.patched]


def thunk_space(plan: ModulePlan, indexes: Indexes) -> int:
    """Bytes that :func:`encode_thunks` needs for these rows of the plan, wherever the agent is."""
    columns = _RecipeColumns(plan.recipes)
    return _LITERAL_SIZE + int(_sizes(columns, _chosen_recipes(plan, indexes)).sum())


def encode_thunks(
    plan: ModulePlan,
    indexes: Indexes,
    load_bias: int,
    thunk_base: int,
    record_base: int,
    function_ids: Indexes,
    enter: int,
    flags: int | Indexes = 0,
) -> ThunkBlock:
    """Thunks for rows ``indexes`` of the plan, for a module loaded at ``load_bias`` (0 for a program at fixed
    addresses).

    ``function_ids`` and ``flags`` go into the records, one each for a row (``flags`` may be one number for all);
    ``thunk_base`` must be a multiple of 16. ValueError for rows that are not hookable.
    """
    if thunk_base % _ALIGNMENT:
        raise ValueError(f"thunks must begin at a multiple of {_ALIGNMENT}, not at {thunk_base:#x}")
    recipes = _chosen_recipes(plan, indexes)
    columns = _RecipeColumns(plan.recipes)
    chosen = np.asarray(indexes, np.int64)
    count = len(chosen)
    sizes = _sizes(columns, recipes)
    thunk = thunk_base + _LITERAL_SIZE + np.cumsum(sizes) - sizes
    body = thunk + HEAD_SIZE
    patch = plan.patch_address[chosen].astype(np.int64) + load_bias
    code = np.full(_LITERAL_SIZE + int(sizes.sum()), _FILLER, np.uint8)
    code[:8] = np.frombuffer(enter.to_bytes(8, "little"), np.uint8)

    record = record_base + RECORD.itemsize * np.arange(count)
    good = _write_heads(code, thunk - thunk_base, record - thunk, enter - thunk_base)
    columns.write_bodies(code, recipes, body - thunk_base)
    good &= columns.fill_in(code, recipes, body - thunk_base, body, patch)
    patches = make_patches(plan, chosen, load_bias, thunk, _copies(plan, chosen, body), good)

    records = np.zeros(count, RECORD)
    records["body"] = body
    records["id"] = np.asarray(function_ids, np.int64)
    records["flags"] = np.asarray(flags, np.int64)
    return ThunkBlock(
        code=code.tobytes(),
        records=records,
        chosen=chosen,
        thunk=thunk.astype(np.uint64),
        body=body.astype(np.uint64),
        trampoline=np.where(plan.trampoline[chosen] != 0, plan.trampoline[chosen] + load_bias, 0).astype(np.uint64),
        patch_address=patches.address.astype(np.uint64),
        patched=patches.owner,
        patch_size=patches.size,
        kind=patches.kind,
        requires=patches.requires,
        original=patches.original,
        replacement=patches.replacement,
        pc_map=columns.pc_map(recipes, thunk, body, patch),
        out_of_reach=np.setdiff1d(np.arange(count), patches.owner),
    )


def _copies(plan: ModulePlan, chosen: _Ints, body: _Ints) -> _Ints:
    """Where the copies lie that the plan's redirects lead to; 0 for those of functions that are not chosen."""
    bodies = dict(zip(chosen.tolist(), body.tolist(), strict=True)) if len(plan.redirects) else {}
    redirects = zip(plan.redirects["row"].tolist(), plan.redirects["target"].tolist(), strict=True)
    return np.array(
        [
            bodies[row] + plan.recipes[plan.recipe[row]].copy_of(target) if row in bodies else 0
            for row, target in redirects
        ],
        np.int64,
    )


def _chosen_recipes(plan: ModulePlan, indexes: Indexes) -> _Ints:
    recipes = plan.recipe[np.asarray(indexes, np.int64)].astype(np.int64)
    if len(recipes) and int(recipes.min()) < 0:
        raise ValueError("some of these functions are not hookable")
    return recipes


def _sizes(columns: _RecipeColumns, recipes: _Ints) -> _Ints:
    return (HEAD_SIZE + columns.body_size[recipes] + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


def _write_heads(
    code: npt.NDArray[np.uint8], place: _Ints, record_distance: _Ints, enter_place: int
) -> npt.NDArray[np.bool_]:
    """Write the head of each thunk; True where its record is in reach. Places count from the start of the block."""
    to_record = record_distance - _LEA_END
    to_enter = enter_place - (place + _LEA_END + JUMP_SIZE)
    direct = bool(fits(to_enter).all())
    if not direct:
        to_enter = -(place + HEAD_SIZE)
    jump = _JMP_DIRECT if direct else _JMP_LITERAL
    heads = np.full((len(place), HEAD_SIZE), _FILLER, np.uint8)
    fixed = _SAVE_R11 + _LEA_R11
    heads[:, : len(fixed)] = np.frombuffer(fixed, np.uint8)
    heads[:, len(fixed) : _LEA_END] = little_endian(to_record)
    heads[:, _LEA_END : _LEA_END + len(jump)] = np.frombuffer(jump, np.uint8)
    heads[:, _LEA_END + len(jump) : _LEA_END + len(jump) + 4] = little_endian(to_enter)
    code[place[:, None] + np.arange(HEAD_SIZE)] = heads
    return fits(to_record)


class _RecipeColumns:
    """All recipes as flat arrays, so that many functions are encoded without a loop over them."""

    def __init__(self, recipes: list[Recipe]) -> None:
        self.body_size = np.array([len(recipe.body) for recipe in recipes], np.int64)
        self.body_start = np.cumsum(self.body_size) - self.body_size
        self.bodies = np.frombuffer(b"".join(recipe.body for recipe in recipes), np.uint8)
        self.fixup_count = np.array([len(recipe.fixups) for recipe in recipes], np.int64)
        self.fixup_start = np.cumsum(self.fixup_count) - self.fixup_count
        fixups = [(fixup.field, fixup.end, fixup.target, fixup.kind) for recipe in recipes for fixup in recipe.fixups]
        self.fixups = np.array(fixups, np.int64).reshape(-1, 4)
        self.row_count = np.array([len(recipe.rows) for recipe in recipes], np.int64)
        self.row_start = np.cumsum(self.row_count) - self.row_count
        rows = [(row.body, row.original, row.pushed, row.starts) for recipe in recipes for row in recipe.rows]
        self.rows = np.array(rows, np.int64).reshape(-1, 4)

    def write_bodies(self, code: npt.NDArray[np.uint8], recipes: _Ints, place: _Ints) -> None:
        """Copy each function's body to its place in the block."""
        owner, source = _expand(self.body_size[recipes], self.body_start[recipes])
        code[source - self.body_start[recipes][owner] + place[owner]] = self.bodies[source]

    def fill_in(
        self, code: npt.NDArray[np.uint8], recipes: _Ints, place: _Ints, body: _Ints, patch: _Ints
    ) -> npt.NDArray[np.bool_]:
        """Fill in the fixups; True for the functions whose distances all fit."""
        owner, index = _expand(self.fixup_count[recipes], self.fixup_start[recipes])
        field, end, target, kind = self.fixups[index].T
        address = patch[owner] + target
        distance = address - (body[owner] + end)
        value = np.where(kind == FixupKind.LOW, address, np.where(kind == FixupKind.HIGH, address >> 32, distance))
        code[(place[owner] + field)[:, None] + np.arange(4)] = little_endian(value)
        good = np.ones(len(recipes), np.bool_)
        good[owner[(kind == FixupKind.RELATIVE) & ~fits(distance)]] = False
        return good

    def pc_map(self, recipes: _Ints, thunk: _Ints, body: _Ints, patch: _Ints) -> npt.NDArray[np.void]:
        """The rows of the heads (which stand for the patch address) and of the bodies, by address."""
        owner, index = _expand(self.row_count[recipes], self.row_start[recipes])
        heads = np.zeros(len(recipes), PC_ROW)
        heads["thunk"], heads["original"], heads["function"] = thunk, patch, np.arange(len(recipes))
        bodies = np.zeros(len(index), PC_ROW)
        offset, original, bodies["pushed"], bodies["starts"] = self.rows[index].T
        bodies["thunk"], bodies["original"], bodies["function"] = body[owner] + offset, patch[owner] + original, owner
        rows = np.concatenate([heads, bodies])
        return rows[np.argsort(rows["thunk"], kind="stable")]


def _expand(counts: _Ints, starts: _Ints) -> tuple[_Ints, _Ints]:
    """For each i, counts[i] indexes from starts[i] on: who they belong to, and the indexes."""
    owner = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) - first[owner] + starts[owner]
