"""Holes and calls among the places of a ring segment, with captured values of any bit pattern between them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shadowgraph.agent import layout
from shadowgraph.ops.places import Renumbering, count_calls, has_holes

FUNCTION = 0x1234
VALUES = layout.ESCAPE_VALUES
WORDS = st.one_of(st.just(0), st.integers(0, (1 << 64) - 1), st.integers(0, 5).map(lambda n: n << 24 | VALUES))


@dataclass(frozen=True)
class Item:
    """One thing that the agent writes: whole, or so far reserved only."""

    data: bytes
    calls: int
    is_hole: bool = False


def place(first: int, second: int) -> bytes:
    return struct.pack("<QQ", first, second)


def values(words: list[int]) -> bytes:
    padded = words + [0] * (len(words) % 2)
    return place(0, len(padded) // 2 << 24 | VALUES) + struct.pack(f"<{len(padded)}Q", *padded)


plain = st.integers(0, (1 << 64) - 1).map(lambda start: Item(place(start, 77 << 24 | FUNCTION), 1))
nobody = st.integers(0, (1 << 64) - 1).map(lambda start: Item(place(start, 77 << 24), 0))
long = st.just(Item(place(1 << 50, layout.ESCAPE_LONG) + place(5, 1 << 24 | FUNCTION), 1))
unwound = st.just(Item(place(0, 1 << 24 | layout.ESCAPE_KIND) + place(5, 1 << 24 | FUNCTION), 1))
captured = st.lists(WORDS, min_size=1, max_size=44).map(
    lambda words: Item(values(words) + place(9, 3 << 24 | FUNCTION), 1)
)
hole = st.just(Item(place(0, 0), 0, True))


@given(st.lists(st.one_of(plain, nobody, long, unwound, captured), max_size=30))
def test_what_is_whole_has_no_holes_and_as_many_calls_as_were_written(items: list[Item]) -> None:
    words = np.frombuffer(b"".join(item.data for item in items), np.uint64)
    assert not has_holes(words)
    assert count_calls(words) == sum(item.calls for item in items)


@given(st.lists(st.one_of(plain, captured, hole), min_size=1, max_size=30))
def test_a_place_that_is_reserved_only_is_a_hole_wherever_it_is(items: list[Item]) -> None:
    words = np.frombuffer(b"".join(item.data for item in items), np.uint64)
    assert has_holes(words) == any(item.is_hole for item in items)


def test_an_empty_segment_has_neither() -> None:
    words = np.zeros(0, np.uint64)
    assert not has_holes(words)
    assert count_calls(words) == 0


@given(st.lists(st.one_of(plain, nobody, long, unwound, captured, hole), max_size=30), st.integers(1, 1 << 19))
def test_calls_get_other_numbers_and_nothing_else_changes(items: list[Item], number: int) -> None:
    data = b"".join(item.data for item in items)
    words = np.frombuffer(bytearray(data), np.uint64)
    numbers = {1: 2}
    renumbering = Renumbering(numbers)
    renumbering.apply(words)  # captured values may look like calls of function 1
    assert words.tobytes() == data
    numbers[FUNCTION] = number
    renumbering.apply(words)
    expected = b"".join(item.data[:-8] + with_number(item, number) for item in items)
    assert words.tobytes() == expected


def with_number(item: Item, number: int) -> bytes:
    """The last word of an item once its function has another number."""
    (word,) = struct.unpack("<Q", item.data[-8:])
    return struct.pack("<Q", word - FUNCTION + number if item.calls else word)
