"""Bytes of code are exchanged where they are what is expected, page by page, and nowhere else."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np
import pytest

from shadowgraph.agent.exchange import WIDTH, Exchange
from shadowgraph.target.memory import Memory

PAGE = 4096


@pytest.fixture
def pages() -> tuple[mmap.mmap, int]:
    """Six pages of our own memory, and where they are."""
    area = mmap.mmap(-1, 6 * PAGE)
    area[:] = bytes(range(256)) * (6 * PAGE // 256)
    return area, ctypes.addressof(ctypes.c_char.from_buffer(area))


def rows(*texts: bytes) -> np.ndarray:
    return np.array([list(text.ljust(WIDTH, b"\0")) for text in texts], np.uint8)


def test_rows_that_hold_what_is_expected_are_replaced_and_others_are_not(pages: tuple[mmap.mmap, int]) -> None:
    area, base = pages
    places = [3 * PAGE + 16, 16, PAGE - 2, 2 * PAGE + 250]
    sizes = [5, 2, 5, 4]
    expected = rows(*(area[place : place + size] for place, size in zip(places, sizes, strict=True)))
    expected[0, 4] ^= 1
    before = area[:]
    memory = Memory(os.getpid())
    exchange = Exchange(np.array(places) + base, np.array(sizes))
    exchange.read(memory)
    assert exchange.holds(expected).tolist() == [False, True, True, True]
    wanted = rows(b"AAAAA", b"BBxxx", b"CCCCC", b"DDDDx")
    exchange.write(memory, wanted, np.array([False, True, True, False]))
    changed = bytearray(before)
    changed[16:18] = b"BB"
    changed[PAGE - 2 : PAGE + 3] = b"CCCCC"
    assert area[:] == bytes(changed)
    memory.close()


def test_rows_where_no_memory_is_hold_nothing_and_their_neighbours_are_served(pages: tuple[mmap.mmap, int]) -> None:
    _, base = pages
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.munmap(ctypes.c_void_p(base + PAGE), PAGE) == 0
    places = np.array([base + 8, base + PAGE + 8, base + 2 * PAGE + 8, base + PAGE - 2])
    exchange = Exchange(places, np.array([5, 5, 5, 2]))
    memory = Memory(os.getpid())
    exchange.read(memory)
    assert exchange.present.tolist() == [True, False, True, True]
    held = exchange.holds(rows(bytes(range(8, 13)), bytes(range(8, 13)), bytes(range(8, 13)), b"\xfe\xff"))
    assert held.tolist() == [True, False, True, True]
    exchange.write(memory, rows(b"AAAAA", b"BBBBB", b"CCCCC", b"DD"), held)
    assert ctypes.string_at(base + 8, 5) == b"AAAAA"
    assert ctypes.string_at(base + 2 * PAGE + 8, 5) == b"CCCCC"
    assert ctypes.string_at(base + PAGE - 2, 2) == b"DD"
    memory.close()
