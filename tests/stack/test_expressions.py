"""DWARF expressions as unwind information uses them: every operation, against its definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowgraph.stack.expressions import evaluate
from shadowgraph.stack.frame import Lost

MASK = (1 << 64) - 1
REGISTERS = {3: 0x3333, 7: 0x7000, 16: 0x401000}
MEMORY = {0x7000: 0x1122334455667788, 0x7008: 0x99}


def read(address: int, size: int) -> int:
    if address not in MEMORY:
        raise Lost("no memory")
    return MEMORY[address] & ((1 << 8 * size) - 1)


def value(code: str, initial: int | None = None) -> int:
    return evaluate(bytes.fromhex(code), REGISTERS, read, initial)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("30", 0),
        ("4f", 31),
        ("08 ff", 255),
        ("09 ff", MASK),
        ("0a ffff", 0xFFFF),
        ("0b feff", MASK - 1),
        ("0c ffffffff", 0xFFFFFFFF),
        ("0d ffffffff", MASK),
        ("0e 8877665544332211", 0x1122334455667788),
        ("0f ffffffffffffffff", MASK),
        ("10 8001", 128),
        ("11 7f", MASK),
        ("03 8877665544332211", 0x1122334455667788),
        ("77 00", 0x7000),
        ("77 78", 0x7000 - 8),
        ("73 8001", 0x3333 + 128),
        ("92 07 08", 0x7008),
        ("57", 0x7000),
        ("90 07", 0x7000),
        ("77 00 06", 0x1122334455667788),
        ("77 00 94 04", 0x55667788),
        ("31 32 14", 1),
        ("31 32 33 15 02", 1),
        ("31 32 12 22 22", 5),
        ("31 32 13", 1),
        ("31 32 16", 1),
        ("31 32 33 17", 2),
        ("35 1f", MASK - 4),
        ("35 20", MASK - 5),
        ("09 fb 19", 5),
        ("37 23 8001", 7 + 128),
        ("30 28 0300 31 2f 0100 32", 1),
        ("31 28 0400 33 2f 0100 34", 4),
        ("35 96", 5),
    ],
)
def test_operations(code: str, expected: int) -> None:
    assert value(code) == expected


def test_the_cfa_is_on_the_stack_at_the_start() -> None:
    assert value("38 1c", 0x7010) == 0x7008


def test_the_rule_of_plt_stubs() -> None:
    """What linkers write for .plt: 8 bytes more once the stub has pushed, 11 bytes behind its start."""
    code = bytes.fromhex("77 08 80 00 3f 1a 3b 2a 33 24 22")
    for offset, pushed in ((0, 0), (10, 0), (11, 8), (15, 8)):
        registers = REGISTERS | {16: 0x401020 + offset}
        assert evaluate(code, registers, read) == 0x7008 + pushed


BINARY = {
    0x1A: lambda a, b: a & b,
    0x1C: lambda a, b: a - b,
    0x1E: lambda a, b: a * b,
    0x21: lambda a, b: a | b,
    0x22: lambda a, b: a + b,
    0x27: lambda a, b: a ^ b,
    0x1D: lambda a, b: a % b if b else None,
    0x24: lambda a, b: a << b if b < 64 else 0,
    0x25: lambda a, b: a >> b if b < 64 else 0,
    0x26: lambda a, b: signed(a) >> min(b, 63),
    0x1B: lambda a, b: int(signed(a) / signed(b)) if b and abs(signed(a)) < 1 << 50 else None,
    0x29: lambda a, b: int(a == b),
    0x2E: lambda a, b: int(a != b),
    0x2A: lambda a, b: int(signed(a) >= signed(b)),
    0x2B: lambda a, b: int(signed(a) > signed(b)),
    0x2C: lambda a, b: int(signed(a) <= signed(b)),
    0x2D: lambda a, b: int(signed(a) < signed(b)),
}


def signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


@given(st.sampled_from(sorted(BINARY)), st.integers(0, MASK), st.integers(0, MASK) | st.integers(0, 70))
def test_arithmetic_is_that_of_64_bits(operation: int, left: int, right: int) -> None:
    expected = BINARY[operation](left, right)
    code = b"\x0e" + left.to_bytes(8, "little") + b"\x0e" + right.to_bytes(8, "little") + bytes([operation])
    if expected is not None:
        assert evaluate(code, {}, read) == expected & MASK
    elif right == 0:
        with pytest.raises(Lost, match="divides by zero"):
            evaluate(code, {}, read)


@given(st.binary(max_size=40))
def test_any_bytes_give_a_number_or_a_reason(code: bytes) -> None:
    try:
        assert 0 <= evaluate(code, REGISTERS, read, 0x7010) <= MASK
    except Lost as lost:
        assert str(lost)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("", "damaged"),
        ("22", "damaged"),
        ("0a ff", "damaged"),
        ("2f fdff", "does not end"),
        ("70 00", "needs register 0"),
        ("37 06", "no memory"),
        ("9c", "not known here"),
    ],
)
def test_what_cannot_be_evaluated_says_why(code: str, reason: str) -> None:
    with pytest.raises(Lost, match=reason):
        value(code)
