"""Blocks of thunks: their layout, their size, what is out of reach, and the map from thunk to original."""

from __future__ import annotations

import capstone
import numpy as np
import pytest

from shadowgraph.agent import layout
from shadowgraph.patch import RECORD, PatchKind, PlanFlag, ThunkBlock, encode_thunks, thunk_space
from tests.support.hook_bench import HERE, Bench, build
from tests.support.lending import LENDING

FIXED = ("-static", "-no-pie", "-Wl,-Ttext-segment=0x10000000", "-Wl,-e,0")
BASE, TABLE, FAR = 0x1100_0000, 0x1180_0000, 0x7FFF_F7A0_0040
SECOND = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(build(HERE / "shapes.S", "shapes", *FIXED))


def encode(bench: Bench, *, base: int = BASE, table: int = TABLE) -> ThunkBlock:
    rows = bench.hookable()
    return encode_thunks(bench.plan, rows, 0, base, table, rows + 1000, rows % 7)


def test_records_are_laid_out_as_the_agent_reads_them() -> None:
    assert layout.function_dtype == RECORD
    assert RECORD.itemsize == layout.FUNCTION_RECORD_SIZE


@pytest.mark.parametrize("table", [TABLE, FAR])
def test_a_thunk_saves_r11_names_its_record_and_goes_where_that_says(bench: Bench, table: int) -> None:
    thunks = encode(bench, table=table)
    for index, address in enumerate(thunks.thunk.tolist()):
        code = thunks.code[address - BASE : address - BASE + 23]
        save, name, go, restore = (next(SECOND.disasm(code[at:], address + at)) for at in (0, 5, 15, 18))
        assert (save.mnemonic, save.op_str) == ("mov", "qword ptr [rsp - 0x30], r11")
        assert (name.mnemonic, name.op_str) == (
            "movabs",
            f"r11, {table + 64 * int(thunks.records['id'][index]):#x}",
        )
        assert (go.mnemonic, go.op_str) == ("jmp", "qword ptr [r11]")
        assert (restore.mnemonic, restore.op_str) == ("mov", "r11, qword ptr [rsp - 0x30]")
        assert address % 16 == 0
        assert int(thunks.body[index]) == address + 23


def test_records_let_calls_pass_until_somebody_wants_them(bench: Bench) -> None:
    thunks = encode(bench)
    rows = bench.hookable()
    assert thunks.records["body"].tolist() == (thunks.body - 5).tolist()
    assert thunks.records["enter"].tolist() == thunks.records["body"].tolist()
    assert thunks.records["id"].tolist() == (rows + 1000).tolist()
    assert thunks.records["flags"].tolist() == (rows % 7).tolist()
    assert thunks.chosen.tolist() == rows.tolist()


def test_space_is_what_the_block_takes(bench: Bench) -> None:
    for rows in (bench.hookable(), bench.hookable()[:1], bench.hookable()[:0]):
        thunks = encode_thunks(bench.plan, rows, 0, BASE, TABLE, rows)
        assert len(thunks.code) == thunk_space(bench.plan, rows)


def test_thunks_do_not_overlap(bench: Bench) -> None:
    thunks = encode(bench)
    sizes = [len(bench.plan.recipes[bench.plan.recipe[row]].body) for row in thunks.chosen]
    ends = thunks.body.astype(np.int64) + sizes
    assert (thunks.thunk[1:].astype(np.int64) >= ends[:-1]).all()
    assert ends[-1] <= BASE + len(thunks.code)


def test_rows_that_are_not_hookable_are_refused(bench: Bench) -> None:
    row = bench.row("packed_1")
    with pytest.raises(ValueError, match="not hookable"):
        thunk_space(bench.plan, [row])
    with pytest.raises(ValueError, match="not hookable"):
        encode_thunks(bench.plan, [row], 0, BASE, TABLE, [1])
    with pytest.raises(ValueError, match="multiple of 16"):
        encode_thunks(bench.plan, [], 0, BASE + 8, TABLE, [])


def test_what_cannot_reach_has_no_patch(bench: Bench) -> None:
    far_away = encode(bench, base=BASE + (1 << 31) + (1 << 20))
    assert far_away.out_of_reach.tolist() == list(range(len(bench.hookable())))
    assert not len(far_away.patch_address)


def test_only_functions_whose_operands_are_out_of_reach_stay_unpatched(bench: Bench) -> None:
    """Thunks just beyond two gigabytes of the data, but not of the code."""
    variable = bench.image.segments[-1].address
    first = int(bench.functions.start.min())
    base = (first + (1 << 31) - (1 << 16)) & -16
    rows = np.array([bench.row("rip_store"), bench.row("static_chain")])
    backwards = encode_thunks(bench.plan, rows, 0, base, TABLE, rows)
    assert not len(backwards.out_of_reach)
    below = (variable - (1 << 31) - 64) & -16
    thunks = encode_thunks(bench.plan, rows, 1 << 33, below + (1 << 33), TABLE, rows)
    assert thunks.out_of_reach.tolist() == [0]
    assert thunks.patched.tolist() == [1]


def test_patches_require_only_what_precedes_them(bench: Bench) -> None:
    thunks = encode(bench)
    assert (thunks.requires < np.arange(len(thunks.requires))).all()
    flags = bench.plan.flags[thunks.chosen[thunks.patched]]
    for index, (size, required) in enumerate(zip(thunks.patch_size.tolist(), thunks.requires.tolist(), strict=True)):
        if size == 2:
            assert flags[index] & PlanFlag.SHORT_JUMP
            assert thunks.patched[required] == thunks.patched[index]
        if size == 5 and flags[index] & PlanFlag.REDIRECTED:
            assert thunks.patch_size[required] == 4
    assert set(thunks.patch_size.tolist()) == {2, 4, 5}


def test_what_requires_a_patch_is_not_usable_without_it(bench: Bench) -> None:
    thunks = encode(bench)
    nothing = np.zeros(len(thunks.patch_size), np.bool_)
    assert thunks.usable(nothing).all()
    needed = np.unique(thunks.requires[thunks.requires >= 0])
    for index in needed.tolist():
        differs = nothing.copy()
        differs[index] = True
        usable = thunks.usable(differs)
        assert not usable[index]
        assert not usable[thunks.requires == index].any()
        assert usable[(thunks.patched != thunks.patched[index]) & ~np.isin(thunks.requires, needed)].all()


def test_a_call_in_its_place_is_not_usable_without_the_jump(bench: Bench) -> None:
    """The jump is where a debugger's breakpoint would be; a call in its place without it would go anywhere."""
    thunks = encode(bench)
    calls = np.flatnonzero(thunks.kind == PatchKind.CALL)
    assert len(calls)
    for owner in thunks.patched[calls].tolist():
        jump = (thunks.patched == owner) & (thunks.kind == PatchKind.JUMP)
        assert not thunks.usable(jump)[thunks.patched == owner].any()


def test_bytes_behind_a_patch_stay_as_they_are(bench: Bench) -> None:
    thunks = encode(bench)
    for size, original, new in zip(thunks.patch_size, thunks.original, thunks.replacement, strict=True):
        assert (original[size:] == new[size:]).all()


def test_patches_do_not_overlap(bench: Bench) -> None:
    thunks = encode(bench)
    order = np.argsort(thunks.patch_address)
    address, size = thunks.patch_address[order].astype(np.int64), thunks.patch_size[order]
    assert (address[:-1] + size[:-1] <= address[1:]).all()


def test_the_pc_map_names_the_original_of_every_instruction(bench: Bench) -> None:
    thunks = encode(bench)
    assert (np.diff(thunks.pc_map["thunk"].astype(np.int64)) > 0).all()
    for index, row in enumerate(thunks.chosen.tolist()):
        mine = thunks.pc_map[thunks.pc_map["function"] == index]
        assert mine["thunk"][0] == thunks.thunk[index]
        assert mine["original"][0] == bench.plan.patch_address[row]
        body = mine[1:]
        recipe = bench.plan.recipes[bench.plan.recipe[row]]
        start = int(thunks.body[index])
        decoded = list(SECOND.disasm(thunks.code[start - BASE : start - BASE + len(recipe.body)], start))
        assert body["thunk"].tolist() == [instruction.address for instruction in decoded]
        # Where a thread may go on: the same instruction, or what stands for it.
        original = list(SECOND.disasm(bench.image.read(int(bench.plan.patch_address[row]), recipe.displaced), 0))
        starts = body["original"][body["starts"]].astype(np.int64) - int(bench.plan.patch_address[row])
        assert starts.tolist() == [instruction.address for instruction in original]


def test_lenders_that_are_missing_leave_the_borrower_out() -> None:
    bench = Bench(build(LENDING, "lending"))
    borrower = bench.row("borrower")
    alone = encode_thunks(bench.plan, [borrower], 0, BASE, TABLE, [1])
    assert alone.out_of_reach.tolist() == [0]
    both = encode_thunks(bench.plan, bench.plan.with_lenders([borrower]), 0, BASE, TABLE, [1, 2])
    assert not len(both.out_of_reach)
    hole = int(np.flatnonzero(both.patch_address == bench.plan.hole[borrower])[0])
    assert both.patch_address[both.requires[hole]] == bench.plan.patch_address[bench.row("lender")]
