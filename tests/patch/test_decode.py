"""The decoder's view of instructions agrees with a second decoder's."""

from __future__ import annotations

import capstone
import pytest
from capstone import x86_const
from hypothesis import given, settings
from hypothesis import strategies as st

from shadowgraph.patch.decode import (
    INVALID_LENGTH,
    Kind,
    decode_steps,
    instruction_lengths,
    uses_red_zone,
)

SECOND = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
SECOND.detail = True

# Opcodes that compilers use, with room for operands behind, so that random bytes are often instructions.
PLAUSIBLE = st.one_of(
    st.binary(min_size=15, max_size=15),
    st.builds(
        lambda prefix, opcode, rest: (prefix + opcode + rest)[:15],
        st.sampled_from([b"", b"\x48", b"\x41", b"\x4c", b"\x66", b"\xf3", b"\xf2", b"\x64", b"\x3e"]),
        st.sampled_from(
            [
                *(
                    bytes([code])
                    for code in (*range(0x00, 0x06), 0x29, 0x31, 0x39, *range(0x50, 0x60), 0x63, 0x68, 0x6A)
                ),
                *(bytes([code]) for code in (*range(0x70, 0x90), 0xA8, *range(0xB0, 0xC2), 0xC3, 0xC6, 0xC7, 0xC9)),
                *(bytes([code]) for code in (0xE0, 0xE1, 0xE2, 0xE3, 0xE8, 0xE9, 0xEB, 0xF6, 0xF7, 0xFE, 0xFF)),
                *(bytes([0x0F, code]) for code in (0x05, 0x0B, 0x10, 0x1E, 0x1F, 0x28, *range(0x80, 0x90), 0xAF, 0xB6)),
            ]
        ),
        st.binary(min_size=15, max_size=15),
    ),
)


def second(code: bytes) -> capstone.CsInsn | None:
    return next(SECOND.disasm(code, 0, 1), None)


@settings(max_examples=2000, deadline=None, derandomize=True)
@given(PLAUSIBLE)
def test_lengths_and_targets_are_those_of_the_second_decoder(code: bytes) -> None:
    steps, other = decode_steps(code, 1), second(code)
    if not steps or other is None or steps[0].kind == Kind.IMMOVABLE:
        return
    step = steps[0]
    if _decoders_differ(other):
        return
    assert step.end == other.size
    if step.kind in (Kind.JUMP, Kind.CONDITIONAL, Kind.LOOP, Kind.CALL, Kind.TRANSACTION):
        assert other.operands[0].type == x86_const.X86_OP_IMM
        assert step.target == _signed(other.operands[0].imm)
    named = [
        operand.mem.disp + other.size
        for operand in other.operands
        if operand.type == x86_const.X86_OP_MEM and operand.mem.base == x86_const.X86_REG_RIP
    ]
    if step.kind == Kind.RIP_RELATIVE:
        assert named == [step.target]
        assert int.from_bytes(step.code[step.field : step.field + 4], "little", signed=True) + step.end == step.target
    elif step.kind == Kind.PLAIN:
        assert not named
        assert not other.group(x86_const.X86_GRP_JUMP) or other.operands[0].type != x86_const.X86_OP_IMM
        assert not other.group(x86_const.X86_GRP_CALL)


def _decoders_differ(other: capstone.CsInsn) -> bool:
    """Where capstone 5 is known to be wrong, or follows another vendor: branches behind 66, ud0 and ud1."""
    groups = (x86_const.X86_GRP_JUMP, x86_const.X86_GRP_CALL, x86_const.X86_GRP_RET, x86_const.X86_GRP_BRANCH_RELATIVE)
    branch = any(other.group(group) for group in groups)
    return (0x66 in other.prefix and branch) or other.id in (x86_const.X86_INS_UD0, x86_const.X86_INS_UD1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("4889e5", Kind.PLAIN),
        ("488d0510000000", Kind.RIP_RELATIVE),
        ("67488d0510000000", Kind.IMMOVABLE),  # eip-relative
        ("eb05", Kind.JUMP),
        ("e900000000", Kind.JUMP),
        ("7405", Kind.CONDITIONAL),
        ("0f8400000000", Kind.CONDITIONAL),
        ("3e7405", Kind.CONDITIONAL),
        ("66e900000000", Kind.IMMOVABLE),
        ("e205", Kind.LOOP),
        ("e305", Kind.LOOP),
        ("67e305", Kind.LOOP),
        ("e800000000", Kind.CALL),
        ("ffd0", Kind.CALL_INDIRECT),
        ("ff1500000000", Kind.CALL_INDIRECT),
        ("ff542408", Kind.IMMOVABLE),  # relative to a stack that a displaced call has moved
        ("ff1c24", Kind.IMMOVABLE),  # far
        ("ffe0", Kind.JUMP_INDIRECT),
        ("ff2500000000", Kind.RIP_RELATIVE),
        ("c7f800000000", Kind.TRANSACTION),
        ("66c7f80000", Kind.IMMOVABLE),
        ("cc", Kind.BREAKPOINT),
        ("0f05", Kind.PLAIN),
        ("c3", Kind.PLAIN),
        ("0f0b", Kind.PLAIN),
    ],
)
def test_kinds(code: str, kind: Kind) -> None:
    steps = decode_steps(bytes.fromhex(code), 1)
    assert steps
    assert steps[0].kind == kind


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("53", -8),
        ("5b", 8),
        ("4883ec18", -24),
        ("4881c400010000", 256),
        ("488d642480", -128),
        ("4889e5", 0),
        ("4883fc08", 0),
        ("4889ec", None),
        ("5c", None),
        ("c9", None),
        ("c8000000", None),
        ("4883e4f0", None),
    ],
)
def test_changes_of_the_stack_pointer(code: str, change: int | None) -> None:
    steps = decode_steps(bytes.fromhex(code), 1)
    assert steps
    assert steps[0].stack == change


@pytest.mark.parametrize(
    ("code", "reads"),
    [("488b0424", True), ("ff3424", True), ("58", True), ("488b442408", False), ("48890424", False), ("c3", False)],
)
def test_reads_of_the_top_of_the_stack(code: str, reads: bool) -> None:
    steps = decode_steps(bytes.fromhex(code), 1)
    assert steps
    assert steps[0].reads_top is reads


def test_a_run_stops_where_enough_is_covered() -> None:
    steps = decode_steps(bytes.fromhex("55 4889e5 4157 4156"), 5)
    assert steps
    assert [(step.offset, step.end) for step in steps] == [(0, 1), (1, 4), (4, 6)]


def test_bytes_that_are_no_instruction_or_cut_short_are_none() -> None:
    assert decode_steps(b"\x55\x06\x90\x90\x90", 5) is None
    assert decode_steps(b"\x55\x48\x8d\x05\x00", 5) is None
    assert instruction_lengths(b"\x55\x06\xc3")[:2] == [1, INVALID_LENGTH]


def test_the_red_zone_is_memory_below_rsp() -> None:
    assert uses_red_zone(bytes.fromhex("48894424f8c3"))
    assert not uses_red_zone(bytes.fromhex("4889442408c3"))
    assert not uses_red_zone(bytes.fromhex("488945f8c3"))
