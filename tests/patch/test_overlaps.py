"""Jumps that share bytes with a call: what is read as both leads where it should, and only to places that are free."""

from __future__ import annotations

import itertools
from functools import cache

import capstone
import numpy as np
import pytest

from shadowgraph.patch import TRAMPOLINE_SIZE, ModulePlan, PlanFlag, share_bytes, trampoline_code
from shadowgraph.patch.trampolines import FreePlaces
from tests.support.first_calls import FIRST_CALLS, SHARING
from tests.support.hook_bench import DATA, Bench, State, build, random_state

FIXED = ("-static", "-no-pie", "-Wl,-Ttext-segment=0x10000000", "-Wl,-e,0")
SECOND = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
SECOND.detail = True
CASES = 4


@cache
def bench(overlaps: bool) -> Bench:
    return Bench(build(FIRST_CALLS, "first_calls", *FIXED), overlaps=overlaps)


def before_of(plan: ModulePlan, row: int) -> int:
    return int(plan.call_address[row]) - int(plan.patch_address[row])


def test_these_calls_can_only_be_pushed_for_where_no_place_is_known() -> None:
    plain = bench(False)
    for name in SHARING:
        row = plain.row(name)
        assert plain.plan.flags[row] & PlanFlag.EMULATED_CALL
        assert plain.plan.overlap[row] >= 0
        assert plain.plan.trampoline[row] == 0


def test_all_are_made_from_their_place_where_it_is_free() -> None:
    shared = bench(True)
    rows = [shared.row(name) for name in SHARING]
    forms = PlanFlag.CALL_IN_PLACE | PlanFlag.OVERLAPPING | PlanFlag.EMULATED_CALL
    found = [PlanFlag(int(shared.plan.flags[row])) & forms for row in rows]
    assert found == [PlanFlag.CALL_IN_PLACE | PlanFlag.OVERLAPPING] * len(rows)
    assert sorted({before_of(shared.plan, row) for row in rows}) == [1, 2, 3, 4]
    places = sorted(int(shared.plan.trampoline[row]) for row in rows)
    assert all(low + TRAMPOLINE_SIZE <= high for low, high in itertools.pairwise(places))


@pytest.mark.parametrize("name", SHARING)
def test_overwritten_bytes_are_a_jump_and_a_call(name: str) -> None:
    shared = bench(True)
    row = shared.row(name)
    patch, size = int(shared.plan.patch_address[row]), int(shared.plan.displaced[row])
    code = bytearray(shared.image.read(patch, size))
    thunks = shared.thunks([row])
    for address, count, new in zip(thunks.patch_address, thunks.patch_size, thunks.replacement, strict=True):
        code[int(address) - patch : int(address) - patch + int(count)] = new[:count].tobytes()
    jump = next(SECOND.disasm(bytes(code), patch))
    assert (jump.mnemonic, int(jump.op_str, 16)) == ("jmp", int(thunks.trampoline[0]))
    call = list(SECOND.disasm(bytes(code[-4:]), patch + size - 4))
    assert (len(call), call[0].mnemonic, call[0].size) == (1, "call", 4)
    memory = call[0].operands[0].mem
    assert (call[0].reg_name(memory.base), memory.disp) == ("rsp", -8)
    assert memory.index in (capstone.x86.X86_REG_INVALID, capstone.x86.X86_REG_RIZ)  # none, however it is scaled


@cache
def calls() -> list[tuple[int, State]]:
    functions = bench(False).functions
    return [
        (int(functions.start[row]), random_state(row * 100 + case, rdi=case + 1, rdx=DATA + 64))
        for row in range(len(functions))
        for case in range(CASES)
    ]


def test_functions_do_the_same_when_hooked_so() -> None:
    shared = bench(True)
    hooked = shared.run(calls(), shared.hookable())
    for (address, _), before, after in zip(calls(), bench(False).run(calls()), hooked, strict=True):
        name = shared.functions.name(shared.functions.find(address))
        assert after.effect == before.effect, name
        assert (before.count, after.count) == (0, 1 + (name in SHARING)), name


def test_places_that_are_taken_are_left_alone() -> None:
    plain, rows = bench(False), np.array([bench(False).row(name) for name in SHARING])
    everything = share_bytes(plain.plan, rows, 0, [(0, 1 << 47)])
    assert (everything.flags == plain.plan.flags).all()
    assert not everything.trampoline.any()
    free = share_bytes(plain.plan, rows, 0, []).trampoline
    row = plain.row("one_byte")
    page = int(free[row]) & -4096
    other = share_bytes(plain.plan, rows, 0, [(page, page + 4096)]).trampoline
    assert other[row] != 0
    assert not page <= other[row] < page + 4096


def test_the_plan_itself_is_not_changed() -> None:
    plain = bench(False)
    before = plain.plan.flags.copy(), plain.plan.recipe.copy(), plain.plan.call_address.copy()
    share_bytes(plain.plan, plain.hookable(), 0, [])
    for column, kept in zip((plain.plan.flags, plain.plan.recipe, plain.plan.call_address), before, strict=True):
        assert (column == kept).all()


def test_trampolines_never_overlap_or_lie_on_what_is_mapped() -> None:
    places = FreePlaces([(0x20000, 0x21000), (0x23000, 0x24000)])
    assert not places.take(0x8000)  # below what the kernel lets anybody map
    assert not places.take(0x20FFF)
    assert not places.take(0x20000 - TRAMPOLINE_SIZE + 1)
    assert places.take(0x20000 - TRAMPOLINE_SIZE)
    assert places.take(0x21FF8)  # across the end of a page
    assert not places.take(0x22000)
    assert places.take(0x21FF8 + TRAMPOLINE_SIZE)
    assert not places.take(0x22FF8)  # the second page is mapped


def test_a_trampoline_leads_to_its_thunk() -> None:
    code = trampoline_code(0x7FFF_1234_5678)
    assert len(code) == TRAMPOLINE_SIZE
    assert int.from_bytes(code[6:], "little") == 0x7FFF_1234_5678
    jump = next(SECOND.disasm(code, 0x1000))
    assert (jump.mnemonic, jump.size, jump.op_str) == ("jmp", 6, "qword ptr [rip]")
