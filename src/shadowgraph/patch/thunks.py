"""The thunks of chosen functions as bytes, all at once: heads, bodies, function records, and the jumps that lead there.

A block of thunks, at an address that the caller has found within ±2 GiB of the module:

    thunk:   mov [rsp-48], r11            ; the 128 bytes below rsp belong to nobody at a function's entry (psABI 3.2.2)
             mov r11, record              ; this function's record: table + 64 * its id, anywhere in memory
             jmp [r11]                    ; to an entry path of the agent, or straight on (RECORD's ``enter``)
    on:      mov r11, [rsp-48]            ; where RECORD's ``body`` leads
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

from shadowgraph.patch.module_plan import ModulePlan
from shadowgraph.patch.patches import fits, little_endian, make_patches
from shadowgraph.patch.recipe import FixupKind, Recipe

__all__ = ["HEAD_OFFSETS", "HEAD_SIZE", "HEAD_START", "PC_ROW", "RECORD", "ThunkBlock", "encode_thunks", "thunk_space"]

Indexes = Sequence[int] | npt.NDArray[np.integer]
_Ints = npt.NDArray[np.int64]

# struct sg_function of native/include/shadowgraph/arena.h; a test holds the two equal.
RECORD = np.dtype(
    [
        ("enter", "<u8"),
        ("body", "<u8"),
        ("id", "<u4"),
        ("flags", "<u4"),
        ("users", "<u8", (2,)),
        ("cell", "<u4"),
        ("variant", "<u4"),
        ("recorders", "<u8"),
        ("callers", "<u8"),
    ]
)

# One instruction of a thunk. A thread standing at ``thunk`` stands, in truth, at ``original``, with ``pushed`` bytes
# of a displaced call's return address on the stack already. ``starts`` marks where a thread that stands at
# ``original`` may go on.
PC_ROW = np.dtype([("thunk", "<u8"), ("original", "<u8"), ("function", "<u4"), ("pushed", "u1"), ("starts", "?")])

_ALIGNMENT = 16
_SAVE_R11 = b"\x4c\x89\x5c\x24\xd0"
_LOAD_R11 = b"\x49\xbb"
_JUMP = b"\x41\xff\x23"
_RESTORE_R11 = b"\x4c\x8b\x5c\x24\xd0"
_ON = len(_SAVE_R11) + len(_LOAD_R11) + 8 + len(_JUMP)
HEAD_SIZE = _ON + len(_RESTORE_R11)
# The instructions of a head that come before its jump: what identifies it, and where each of them begins.
HEAD_START = _SAVE_R11 + _LOAD_R11
HEAD_OFFSETS = (0, len(_SAVE_R11), len(_SAVE_R11) + len(_LOAD_R11) + 8)
_FILLER = 0xCC


@dataclass(frozen=True)
class ThunkBlock:
    """What to write where, for m functions. Addresses are those of the target process.

    ``code``          bytes for ``thunk_base``
    ``records``       RECORD[m]; each belongs at the place of its ``id`` in the table
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
    """Bytes that :func:`encode_thunks` needs for these rows of the plan."""
    columns = _RecipeColumns(plan.recipes)
    return int(_sizes(columns, _chosen_recipes(plan, indexes)).sum())


def encode_thunks(
    plan: ModulePlan,
    indexes: Indexes,
    load_bias: int,
    thunk_base: int,
    table: int,
    function_ids: Indexes,
    flags: int | Indexes = 0,
) -> ThunkBlock:
    """Thunks for rows ``indexes`` of the plan, for a module loaded at ``load_bias`` (0 for a program at fixed
    addresses).

    ``table`` is where the function records lie, ``function_ids`` which of them each row has; ``flags`` go into them
    (one number for each row, or for all). The records let every call pass: who wants the calls is to be filled in.
    ``thunk_base`` must be a multiple of 16. ValueError for rows that are not hookable.
    """
    if thunk_base % _ALIGNMENT:
        raise ValueError(f"thunks must begin at a multiple of {_ALIGNMENT}, not at {thunk_base:#x}")
    recipes = _chosen_recipes(plan, indexes)
    columns = _RecipeColumns(plan.recipes)
    chosen = np.asarray(indexes, np.int64)
    count = len(chosen)
    sizes = _sizes(columns, recipes)
    thunk = thunk_base + np.cumsum(sizes) - sizes
    body = thunk + HEAD_SIZE
    patch = plan.patch_address[chosen].astype(np.int64) + load_bias
    ids = np.asarray(function_ids, np.int64)
    code = np.full(int(sizes.sum()), _FILLER, np.uint8)
    _write_heads(code, thunk - thunk_base, table + RECORD.itemsize * ids)
    columns.write_bodies(code, recipes, body - thunk_base)
    good = columns.fill_in(code, recipes, body - thunk_base, body, patch)
    patches = make_patches(plan, chosen, load_bias, thunk, _copies(plan, chosen, body), good)

    reached = np.zeros(count, np.bool_)
    reached[patches.owner] = True
    records = np.zeros(count, RECORD)
    records["enter"] = records["body"] = thunk + _ON
    records["id"] = ids
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
        out_of_reach=np.flatnonzero(~reached),
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


def _write_heads(code: npt.NDArray[np.uint8], place: _Ints, record: _Ints) -> None:
    """Write the head of each thunk. Places count from the start of the block."""
    head = _SAVE_R11 + _LOAD_R11 + bytes(8) + _JUMP + _RESTORE_R11
    heads = np.tile(np.frombuffer(head, np.uint8), (len(place), 1))
    at = len(HEAD_START)
    heads[:, at : at + 8] = record.astype("<u8").view(np.uint8).reshape(-1, 8)
    code[place[:, None] + np.arange(HEAD_SIZE)] = heads


class _RecipeColumns:
    """All recipes as flat arrays, so that many functions are encoded without a loop over them."""

    def __init__(self, recipes: Sequence[Recipe]) -> None:
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
