"""The test bench of relocation: functions run with and without a hook, in a process of their own, and are compared.

Nothing of the tracer is needed for it: `host.c` maps code where it is told and calls functions in it, `enter.S` is the
least agent that a thunk can lead to.
"""

from __future__ import annotations

import random
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from shadowgraph.image import FunctionTable, Image, open_image, read_functions
from shadowgraph.patch import (
    ModulePlan,
    ThunkBlock,
    encode_thunks,
    plan_module,
    share_bytes,
    thunk_space,
    trampoline_code,
)

__all__ = ["DATA", "Bench", "Outcome", "State", "build", "random_state", "scratch"]

HERE = Path(__file__).resolve().parent
DATA, DATA_SIZE = 0x3000_0000, 1 << 16
LOG = 0x3100_0000
BIAS = 0x1000_0000
FAR = 0x7B00_0000_0000
GAP = 1 << 24

_STATE = struct.Struct("<16Q2Q16Q")
_RESULT = struct.Struct("<16Q2Q16QQQQ32IQ")
RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI = range(8)


@cache
def scratch() -> Path:
    """A folder that lives as long as the test session."""
    _folders.append(tempfile.TemporaryDirectory(prefix="hook-bench-"))
    return Path(_folders[-1].name)


_folders: list[tempfile.TemporaryDirectory[str]] = []


def compile_with(arguments: Sequence[str | Path], output: Path) -> Path:
    """Run gcc, unless the output is there already."""
    if not output.exists():
        finished = subprocess.run(["gcc", *map(str, arguments), "-o", str(output)], capture_output=True, text=True)
        assert finished.returncode == 0, finished.stderr
    return output


def build(source: str | Path, name: str, *flags: str) -> Path:
    """A library without libc and without relocations from C or assembly text (or a file)."""
    if isinstance(source, str):
        suffix = ".S" if ".globl" in source else ".c"
        path = scratch() / f"{name}{suffix}"
        path.write_text(source)
    else:
        path = source
    base = ["-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-builtin", "-Wl,--build-id=none"]
    kind = [] if "-static" in flags else ["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic"]
    return compile_with([*base, *kind, *flags, path], scratch() / f"{name}.so")


@dataclass(frozen=True)
class State:
    """What a function is called with: 16 registers as the CPU numbers them (rsp is the host's), flags, xmm0 to 7."""

    registers: tuple[int, ...]
    flags: int
    vectors: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """What a function left behind. ``entered`` are the first 32 ids that its run logged, ``count`` is their number."""

    registers: tuple[int, ...]
    flags: int
    vectors: tuple[int, ...]
    data: int
    stack: int
    signal: int
    count: int
    entered: tuple[int, ...]

    @property
    def effect(self) -> tuple[object, ...]:
        """All that must be the same with and without a hook."""
        return (self.signal, self.registers, self.flags, self.vectors, self.data, self.stack)


def random_state(seed: int, **registers: int) -> State:
    """Registers with random numbers, small and large, or addresses of data; those named hold what is given."""
    chance = random.Random(seed)
    values = [
        chance.choice([chance.getrandbits(64), chance.getrandbits(5), DATA + chance.randrange(0, DATA_SIZE // 2, 8)])
        for _ in range(16)
    ]
    names = {"rax": RAX, "rcx": RCX, "rdx": RDX, "rbx": RBX, "rbp": RBP, "rsi": RSI, "rdi": RDI}
    names |= {f"r{number}": number for number in range(8, 16)}
    for name, value in registers.items():
        values[names[name]] = value
    # CF, PF, AF, ZF, SF, OF at random; the direction flag is clear, as the ABI wants it.
    flags = 0x202 | (chance.getrandbits(12) & 0x8D5)
    return State(tuple(values), flags, tuple(chance.getrandbits(64) for _ in range(16)))


class Bench:
    """One image, planned, and the addresses at which it, its thunks and `enter` lie."""

    def __init__(self, path: Path, *, far: bool = False, real_calls: bool = False, overlaps: bool = False) -> None:
        self.image: Image = open_image(path)
        self.functions: FunctionTable = read_functions(self.image)
        self.plan: ModulePlan = plan_module(self.image, self.functions, real_calls=real_calls)
        self.bias = BIAS if self.image.is_pie else 0
        self.low = min(part.address for part in self.image.segments) + self.bias & -4096
        self.high = (max(part.end for part in self.image.segments) + self.bias + 4095) & -4096
        self.thunk_base = self.high + GAP
        self.enter = FAR if far else self.thunk_base + 4 * GAP
        if overlaps:
            taken = [(self.low, self.enter + GAP), (DATA - GAP, LOG + GAP)]
            self.plan = share_bytes(self.plan, self.hookable(), self.bias, taken)

    def row(self, name: str) -> int:
        """The row of a function."""
        return next(row for row in range(len(self.functions)) if name in self.functions.names(row))

    def hookable(self) -> np.ndarray:
        """Rows that the plan offers."""
        return np.flatnonzero(self.plan.hookable)

    def thunks(self, rows: Sequence[int] | np.ndarray) -> ThunkBlock:
        """Thunks for these rows and their lenders, at the bench's addresses; each function's id is its row."""
        rows = self.plan.with_lenders(rows)
        table = self.thunk_base + (thunk_space(self.plan, rows) + 4095 & -4096)
        thunks = encode_thunks(self.plan, rows, self.bias, self.thunk_base, table, rows)
        thunks.records["enter"] = self.enter
        return thunks

    def run(self, calls: Sequence[tuple[int, State]], rows: Sequence[int] | np.ndarray = ()) -> list[Outcome]:
        """Call functions (image addresses) one after the other, with ``rows`` hooked."""
        regions = [(self.low, self._module(self.thunks(rows) if len(rows) else None))]
        if len(rows):
            thunks = self.thunks(rows)
            assert not len(thunks.out_of_reach)
            table = np.zeros(int(thunks.records["id"].max()) + 1, thunks.records.dtype)
            table[thunks.records["id"]] = thunks.records
            padding = bytes(-len(thunks.code) % 4096)
            regions.append((self.thunk_base, thunks.code + padding + table.tobytes()))
            regions.append((self.enter, _enter()))
            regions += _trampolines(thunks)
        regions.append((DATA, random.Random(1).randbytes(DATA_SIZE)))
        regions.append((LOG, bytes(4096)))
        return _host(regions, [(address + self.bias, state) for address, state in calls])

    def _module(self, thunks: ThunkBlock | None) -> bytes:
        memory = bytearray(self.high - self.low)
        for part in self.image.segments:
            start = part.address + self.bias - self.low
            memory[start : start + part.file_size] = self.image.read(part.address, part.file_size)
        if thunks is not None:
            apply_patches(memory, self.low, thunks)
        return bytes(memory)


def apply_patches(memory: bytearray, base: int, thunks: ThunkBlock) -> None:
    """Write the jumps into a module's bytes as a patcher would: after a look at what is there, no byte too many."""
    places, sizes = (thunks.patch_address.astype(np.int64) - base).tolist(), thunks.patch_size.tolist()
    for start, size, original, replacement in zip(places, sizes, thunks.original, thunks.replacement, strict=True):
        assert memory[start : start + size] == original[:size].tobytes()
        memory[start : start + size] = replacement[:size].tobytes()


def _trampolines(thunks: ThunkBlock) -> list[tuple[int, bytes]]:
    """The pages that hold trampolines."""
    pages: dict[int, bytearray] = {}
    for place, thunk in zip(thunks.trampoline.tolist(), thunks.thunk.tolist(), strict=True):
        for offset, byte in enumerate(trampoline_code(thunk) if place else b""):
            pages.setdefault((place + offset) & -4096, bytearray(4096))[(place + offset) & 4095] = byte
    return [(page, bytes(content)) for page, content in pages.items()]


@cache
def _host_program() -> Path:
    # Position independent, so that its heap lies far from where the tested code wants to be.
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fpie", "-pie"]
    return compile_with([*flags, HERE / "host.c"], scratch() / "host")


@cache
def _enter() -> bytes:
    linked = scratch() / "enter.elf"
    compile_with(["-nostdlib", "-static", f"-DLOG={LOG:#x}", "-Wl,-e,enter", HERE / "enter.S"], linked)
    image = open_image(linked)
    return next(text.data.tobytes() for text in image.text if text.address == image.entry)


def _host(regions: list[tuple[int, bytes]], calls: list[tuple[int, State]]) -> list[Outcome]:
    parts = [struct.pack("<I", len(regions))]
    for address, content in regions:
        parts += [struct.pack("<3Q", address, len(content) + 4095 & -4096, len(content)), content]
    parts.append(struct.pack("<3QI", DATA, DATA_SIZE, LOG, len(calls)))
    for address, state in calls:
        parts.append(_STATE.pack(*state.registers, state.flags, address, *state.vectors))
    finished = subprocess.run([_host_program()], input=b"".join(parts), capture_output=True, timeout=120)
    assert finished.returncode == 0, finished.stderr.decode()
    assert len(finished.stdout) == _RESULT.size * len(calls)
    return [_outcome(fields) for fields in _RESULT.iter_unpack(finished.stdout)]


def _outcome(fields: tuple[int, ...]) -> Outcome:
    count = fields[36]
    return Outcome(
        registers=fields[:16],
        flags=fields[16],
        vectors=fields[18:34],
        data=fields[34],
        stack=fields[35],
        signal=fields[69],
        count=count,
        entered=fields[37 : 37 + min(count, 32)],
    )
