"""Moved code says the same as the original, by a second decoder: same instructions, same targets, wherever it lies."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import capstone
import numpy as np
import pytest
from capstone import x86_const
from hypothesis import given, settings
from hypothesis import strategies as st

from shadowgraph.image import Reason, open_image, read_functions
from shadowgraph.patch import ModulePlan, ThunkBlock, encode_thunks, plan_module
from shadowgraph.patch.decode import decode_steps
from shadowgraph.patch.relocate import CallForm, FixupKind, Recipe, relocate

SECOND = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
SECOND.detail = True
SAMPLE = 1500


def real_programs() -> list[str]:
    """Programs and libraries of this machine, each with habits of its own."""
    names = ["bash", "perl", "git", "gdb", "openssl"]
    found = [shutil.which(name) for name in names]
    libraries = [
        *Path("/lib/x86_64-linux-gnu").glob("lib[cmz].so.*"),
        *Path("/usr/lib/x86_64-linux-gnu").glob("libc.so.6"),
    ]
    return sorted({str(Path(path).resolve()) for path in [*found, *libraries] if path})[:6]


@pytest.mark.parametrize("path", real_programs())
def test_thunks_of_real_functions_do_what_was_displaced(path: str) -> None:
    image = open_image(path)
    plan = plan_module(image, read_functions(image))
    rows = np.flatnonzero(plan.hookable)
    rows = plan.with_lenders(rows[:: max(1, len(rows) // SAMPLE)])
    bias = 0x5555_5555_4000 if image.is_pie else 0
    base = bias + 0x2000_0000
    thunks = encode_thunks(plan, rows, bias, base, base + 0x1000_0000, rows)
    assert not len(thunks.out_of_reach)
    for index, row in enumerate(rows.tolist()):
        address = int(plan.patch_address[row])
        original = image.read(address, int(plan.displaced[row]))
        compare(original, address + bias, body_of(thunks, index, plan, row), int(thunks.body[index]))


def body_of(thunks: ThunkBlock, index: int, plan: ModulePlan, row: int) -> bytes:
    start = int(thunks.body[index]) - int(thunks.thunk[0])
    return thunks.code[start : start + len(plan.recipes[plan.recipe[row]].body)]


def compare(original: bytes, address: int, body: bytes, place: int) -> None:
    """Each displaced instruction in turn must be found in the body, in one of the forms that relocation knows."""
    before = list(SECOND.disasm(original, address))
    after = list(SECOND.disasm(body, place))
    assert sum(instruction.size for instruction in before) == len(original)
    assert sum(instruction.size for instruction in after) == len(body)
    copies = _match(before, after)
    starts = {instruction.address: first.address for instruction, first, _ in copies}
    end = address + len(original)
    for instruction, _, copy in copies:
        wanted, got = _target(instruction), _target(copy)
        if wanted is not None and got is not None:
            is_branch = instruction.operands[0].type == x86_const.X86_OP_IMM
            assert got == (starts.get(wanted, wanted) if is_branch else wanted), f"{instruction} {copy}"
    last = before[-1]
    if not _ends(last):
        assert after[-1].mnemonic == "jmp"
        assert _target(after[-1]) == end


def _match(
    before: Sequence[capstone.CsInsn], after: Sequence[capstone.CsInsn]
) -> list[tuple[capstone.CsInsn, capstone.CsInsn, capstone.CsInsn]]:
    """Each original instruction, the first of its copy, and the one of its copy that has its target."""
    rest = list(after)
    found = []
    for instruction in before:
        first = copy = rest.pop(0)
        if instruction.group(x86_const.X86_GRP_CALL) and not instruction.mnemonic.startswith("sys"):
            copy = _match_call(instruction, first, rest)
        elif instruction.id in _SHORT_ONLY:
            over = rest.pop(0)
            assert copy.id == instruction.id
            assert _target(copy) == over.address + over.size
            copy = rest.pop(0)
            assert over.mnemonic == copy.mnemonic == "jmp"
            assert _target(over) == copy.address + copy.size
        else:
            assert copy.id == instruction.id
            assert _plain_operands(copy) == _plain_operands(instruction)
        found.append((instruction, first, copy))
    assert len(rest) <= 1
    return found


def _match_call(instruction: capstone.CsInsn, first: capstone.CsInsn, rest: list[capstone.CsInsn]) -> capstone.CsInsn:
    """The instruction of a displaced call's copy that has its target, if any has; the rest of the copy is taken off."""
    successor = instruction.address + instruction.size
    if first.mnemonic == "push" and first.operands[0].type == x86_const.X86_OP_IMM:
        assert first.operands[0].imm & 0xFFFFFFFF == successor & 0xFFFFFFFF
        assert rest.pop(0).op_str == f"dword ptr [rsp + 4], {_number(successor >> 32)}"
        copy = rest.pop(0)
        assert copy.mnemonic == "jmp"
        return copy
    if first.mnemonic == "push":  # an indirect call from its place
        assert _plain_operands(first) == _plain_operands(instruction)
        assert rest.pop(0).op_str == "rsp, [rsp + 8]"
        assert _target(rest.pop(0)) == successor - 4
        return first
    if first.mnemonic == "mov":  # a direct one
        half = rest.pop(0)
        target = first.operands[1].imm & 0xFFFFFFFF | (half.operands[1].imm & 0xFFFFFFFF) << 32
        assert (first.op_str.split(",")[0], half.op_str.split(",")[0]) == ("dword ptr [rsp - 8]", "dword ptr [rsp - 4]")
        assert target == _target(instruction)
        back = rest.pop(0)
        assert _target(back) == successor - 4
        return instruction
    assert first.mnemonic == "call"
    return first


_SHORT_ONLY = {
    x86_const.X86_INS_LOOP,
    x86_const.X86_INS_LOOPE,
    x86_const.X86_INS_LOOPNE,
    x86_const.X86_INS_JRCXZ,
    x86_const.X86_INS_JECXZ,
}


def _number(value: int) -> str:
    return f"{value:#x}" if value > 9 else str(value)


def _plain_operands(instruction: capstone.CsInsn) -> str:
    return "" if _target(instruction) is not None else instruction.op_str


def _target(instruction: capstone.CsInsn) -> int | None:
    """The address that a direct branch or a rip-relative operand names."""
    for operand in instruction.operands:
        if operand.type == x86_const.X86_OP_MEM and operand.mem.base == x86_const.X86_REG_RIP:
            return instruction.address + instruction.size + operand.mem.disp
    groups = (x86_const.X86_GRP_JUMP, x86_const.X86_GRP_CALL, x86_const.X86_GRP_BRANCH_RELATIVE)
    if any(instruction.group(group) for group in groups) and instruction.operands:
        target = instruction.operands[0]
        return int(target.imm) if target.type == x86_const.X86_OP_IMM else None
    return None


def _ends(instruction: capstone.CsInsn) -> bool:
    is_call = instruction.group(x86_const.X86_GRP_CALL) and not instruction.mnemonic.startswith("sys")
    return bool(
        is_call
        or instruction.group(x86_const.X86_GRP_RET)
        or instruction.id
        in (x86_const.X86_INS_JMP, x86_const.X86_INS_UD2, x86_const.X86_INS_UD1, x86_const.X86_INS_UD0)
    )


# --- made-up code ---


def moved(code: str, entry: int = 0) -> Recipe | Reason:
    raw = bytes.fromhex(code)
    steps = decode_steps(raw, len(raw))
    assert steps
    return relocate(steps, entry)


def filled_in(recipe: Recipe, address: int, place: int) -> bytes:
    """What encode_thunks does, one fixup at a time."""
    body = bytearray(recipe.body)
    for fixup in recipe.fixups:
        target = address + fixup.target
        value = {
            FixupKind.LOW: target & 0xFFFFFFFF,
            FixupKind.HIGH: target >> 32,
            FixupKind.RELATIVE: (target - (place + fixup.end)) & 0xFFFFFFFF,
        }[fixup.kind]
        body[fixup.field : fixup.field + 4] = value.to_bytes(4, "little")
    return bytes(body)


PIECES = [
    *("55", "4889e5", "4157", "f30f1efa", "31c0", "4883ec28", "90", "0f1f4000", "b801000000", "6a05", "0f05"),
    *(
        "488d3d44332211",
        "8b0544332211",
        "833d4433221107",
        "c705443322110a000000",
        "f20f100544332211",
        "660f6f0544332211",
    ),
    *("7405", "0f8544332211", "e310", "e2f0", "67e304", "c7f844332211", "642b042528000000", "0fb6c0", "ff2544332211"),
]


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
    st.sampled_from(["", "e844332211", "ffd0", "ff1544332211", "ff5010", "e944332211", "eb10", "c3", "0f0b", "ffe0"]),
    st.integers(0x40_0000, 0x7FFF_0000_0000),
    st.integers(-(1 << 30), 1 << 30),
)
def test_made_up_runs_do_the_same_elsewhere(pieces: list[str], last: str, address: int, distance: int) -> None:
    code = "".join(pieces) + last
    recipe = moved(code)
    if isinstance(recipe, Reason):
        assert recipe == Reason.NOT_RELOCATABLE
        return
    place = max(address + distance, 0x1_0000)
    compare(bytes.fromhex(code), address, filled_in(recipe, address, place), place)


def test_a_jump_to_a_displaced_instruction_goes_to_its_copy() -> None:
    recipe = moved("85ff 7402 ffc6 89f0".replace(" ", ""))
    assert isinstance(recipe, Recipe)
    assert recipe.body[:8] == bytes.fromhex("85ff 0f84 02000000")
    assert len(recipe.fixups) == 1  # the jump back alone


def test_a_jump_into_the_middle_of_a_displaced_instruction_is_refused() -> None:
    assert moved("740183f805c3") == Reason.NOT_RELOCATABLE


def test_a_jump_to_the_function_behind_endbr64_is_a_loop() -> None:
    recipe = moved("ffcf 75f8 90".replace(" ", ""), entry=-4)
    outside = moved("ffcf 75f8 90".replace(" ", ""), entry=0)
    assert isinstance(recipe, Recipe)
    assert isinstance(outside, Recipe)
    assert [fixup.target for fixup in recipe.fixups] == [5]
    assert [fixup.target for fixup in outside.fixups] == [-4, 5]


def test_a_call_needs_its_successor_outside_of_the_overwritten_bytes() -> None:
    assert moved("ffd0c3") == Reason.NOT_RELOCATABLE
    assert moved("ffd083c001") == Reason.NOT_RELOCATABLE
    recipe = moved("4883c001ffd0")
    assert isinstance(recipe, Recipe)
    assert recipe.call == CallForm.PUSHED


def test_code_that_reads_its_own_first_bytes_is_refused() -> None:
    assert moved("8b05fdffffff") == Reason.NOT_RELOCATABLE
    assert isinstance(moved("488d05f9ffffff"), Recipe)  # its own address is no secret


def test_a_call_is_made_from_its_place_where_four_bytes_are_left() -> None:
    for code in ("4883ec08e844332211", "4883ec08ff1544332211", "488b07ff1544332211"):
        recipe = moved(code)
        assert isinstance(recipe, Recipe)
        assert recipe.call == CallForm.IN_PLACE
    for code in ("4889fbe844332211", "53e844332211", "e844332211"):
        recipe = moved(code)
        assert isinstance(recipe, Recipe)
        assert recipe.call == CallForm.PUSHED


def test_calls_from_the_thunk_may_be_followed_by_anything() -> None:
    steps = decode_steps(bytes.fromhex("ffd083c001"), 5)
    assert steps
    recipe = relocate(steps, 0, real_calls=True)
    assert isinstance(recipe, Recipe)
    assert recipe.call == CallForm.REAL
    assert recipe.body.startswith(bytes.fromhex("ffd083c001e9"))


def test_a_call_of_the_next_instruction_gets_the_true_address() -> None:
    steps = decode_steps(bytes.fromhex("e800000000"), 5)
    assert steps
    recipe = relocate(steps, 0, real_calls=True)
    assert isinstance(recipe, Recipe)
    assert recipe.call == CallForm.OF_NEXT


def rows_of(code: str) -> list[tuple[int, int, int, bool]]:
    recipe = moved(code)
    assert isinstance(recipe, Recipe)
    return [(row.body, row.original, row.pushed, row.starts) for row in recipe.rows]


def test_rows_say_where_a_thread_goes_on() -> None:
    assert rows_of("554889e583c001") == [(0, 0, 0, True), (1, 1, 0, True), (4, 4, 0, True), (7, 7, 0, False)]


def test_rows_of_calls_tell_what_has_been_pushed() -> None:
    pushed = [(0, 0, 0, True), (1, 1, 0, True), (6, 1, 8, False), (14, 1, 8, False)]
    assert rows_of("53e844332211") == pushed
    in_place = [(0, 0, 0, True), (4, 4, 0, True), (12, 4, 0, False), (20, 4, 0, False)]
    assert rows_of("4883ec08e844332211") == in_place
    through_stack = [(0, 0, 0, True), (4, 4, 0, True), (10, 4, 8, False), (15, 4, 0, False)]
    assert rows_of("4883ec08ff1544332211") == through_stack
