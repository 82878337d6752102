"""The native evaluator of predicates, built for tests, and the calls that it is asked about."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import hypothesis

from shadowgraph.agent import layout
from shadowgraph.ops.predicates import Predicate
from tests.support.build import scratch_folder
from tests.support.native import ROOT, load_build

__all__ = [
    "PAGE",
    "Call",
    "Memory",
    "build_harness",
    "decide",
    "decide_at_entry",
    "decide_at_exit",
    "evaluator",
    "seconds_for",
]

PAGE = 4096


def build_harness(*more: str) -> Path:
    """The evaluator as a shared library, compiled as the agent is, and with further options."""
    output = Path(tempfile.mkdtemp(prefix="predicate-", dir=scratch_folder())) / "evaluator.so"
    options = [*load_build().AGENT.compile_options, *more]
    command = ["gcc", *options, "-shared", "-nostdlib", str(ROOT / "tests" / "support" / "predicate_harness.c")]
    subprocess.run([*command, "-o", str(output)], check=True)
    return output


@cache
def evaluator() -> ctypes.CDLL:
    """The evaluator."""
    library = ctypes.CDLL(str(build_harness()))
    library.harness_time.restype = ctypes.c_uint64
    library.harness_random.restype = ctypes.c_long
    return library


@dataclass
class Call:
    """What is known of a call at its entry and at its exit."""

    integers: Sequence[int] = (0,) * 6
    stack: Sequence[int] = (0,) * 3
    stack_at: int | None = None  # where the first stack argument is, if not among ours
    floats: Sequence[int] = (0,) * 8  # bits
    result: int = 0
    result_high: int = 0
    fresult: int = 0  # bits
    ticks: int = 0
    depth: int = 0
    thread: int = 1
    pid: int = 1
    returned: bool = True
    saved: list[int] = field(default_factory=lambda: [0xDEAD] * layout.PREDICATE_SAVED)


def _mapped(address: int) -> bool:
    """Whether this process has a byte at an address."""
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        return address < 1 << 63 and len(os.pread(memory, 1, address)) == 1
    except OSError:
        return False
    finally:
        os.close(memory)


class Memory:
    """Pages of memory with nothing around them: readable ones at ``base``, and as many behind a hole."""

    AROUND = 64

    def __init__(self, pages: int = 2) -> None:
        self._area = mmap.mmap(-1, (2 * self.AROUND + 2 * pages) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._area))
        self.pages, self.size = pages, pages * PAGE
        self.start, self.end = start, start + (2 * self.AROUND + 2 * pages) * PAGE
        self.base = start + self.AROUND * PAGE
        self.behind = self.base + 2 * self.size
        libc = ctypes.CDLL(None, use_errno=True)
        for address, size in (
            (start, self.base - start),
            (self.base + self.size, self.size),
            (self.behind + self.size, self.end - self.behind - self.size),
        ):
            assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), 0) == 0

    def write(self, address: int, data: bytes) -> None:
        ctypes.memmove(address, data, len(data))

    def holds(self, address: int) -> bool:
        """Whether there is a byte at an address.

        Other memory of this process is nobody's business: an example that happens to point there is put aside, as
        what lies there may change between two looks.
        """
        if not self.start <= address < self.end and _mapped(address):
            hypothesis.reject()
        return self.base <= address < self.base + self.size or self.behind <= address < self.behind + self.size


def _words(values: Sequence[int]) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * len(values))(*(value & (1 << 64) - 1 for value in values))


class _Input:
    """A struct sg_predicate_input with what it points to: at the entry nothing of the exit, and the other way round."""

    def __init__(self, call: Call, *, at_exit: bool) -> None:
        self.integers, self.saved = _words([*call.integers, 0xBAD, 0xBAD]), _words(call.saved)
        self.stack = _words([0x5107, *call.stack])
        self.vectors = _words([word for bits in call.floats for word in (bits, 0x1234)])
        stack = ctypes.addressof(self.stack) + 8 if call.stack_at is None else call.stack_at
        pointers = [ctypes.addressof(self.integers), stack, ctypes.addressof(self.vectors)]
        results = [call.returned, call.result, call.result_high, call.fresult, call.ticks]
        places = [call.depth, call.thread, call.pid]
        saved = ctypes.addressof(self.saved)
        fields = [0, 0, 0, saved, *results, 0, 0, 0] if at_exit else [*pointers, saved, 0, 0, 0, 0, 0, *places]
        self.bytes = struct.pack(f"<{len(fields)}Q", *(number & (1 << 64) - 1 for number in fields))
        assert len(self.bytes) == layout.predicate_input_dtype.itemsize


def _holds(code: bytes, call: Call, *, at_exit: bool) -> bool:
    assert len(code) == layout.predicate_dtype.itemsize
    given = _Input(call, at_exit=at_exit)
    answer = evaluator().harness_holds(code, given.bytes)
    assert answer in (0, 1)
    call.saved = list(given.saved)
    return bool(answer)


def decide(predicate: Predicate, call: Call) -> bool:
    """What entry and exit say together, as the agent asks them: at the exit there are no registers of the entry."""
    if not _holds(predicate.entry_code, call, at_exit=False):
        return False
    return not predicate.needs_exit or _holds(predicate.exit_code, call, at_exit=True)


def decide_at_entry(predicate: Predicate, call: Call) -> bool:
    """What the entry says alone."""
    return _holds(predicate.entry_code, call, at_exit=False)


def decide_at_exit(predicate: Predicate, call: Call) -> bool:
    """What the exit says, after the entry."""
    return _holds(predicate.exit_code, call, at_exit=True)


def seconds_for(code: bytes, call: Call, rounds: int, *, at_exit: bool = False) -> tuple[float, int]:
    """How long so many evaluations take, and how often the predicate held."""
    given, held = _Input(call, at_exit=at_exit), ctypes.c_uint64()
    taken = evaluator().harness_time(code, given.bytes, ctypes.c_uint64(rounds), ctypes.byref(held))
    return taken / 1e9, held.value
