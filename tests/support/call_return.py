"""The call/return checker (callcheck/) from Python: would a hardware shadow stack allow every ``ret`` of a program?"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tests.support.build import scratch_folder

__all__ = ["CallReport", "Mismatch", "attach_command", "check_calls", "main_distance", "read_report"]

_SOURCES = Path(__file__).resolve().parent / "callcheck"
_LIBC = Path("/lib/x86_64-linux-gnu/libc.so.6")


@dataclass(frozen=True)
class Mismatch:
    """A ret that did not go where the shadow stack said: where it stands, and the two addresses."""

    file: str
    offset: int
    pc: int
    expected: int
    actual: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}+{self.offset:#x} returned to {self.actual:#x}, not {self.expected:#x}"


@dataclass(frozen=True)
class CallReport:
    """What was seen; ``exit`` is the program's status (128 + signal), -1 where the checker let go of it."""

    steps: int
    calls: int
    returns: int
    unknown_returns: int
    unwound: int
    switches: int
    signals: int
    threads: int
    exit: int
    limited: bool
    mismatch_count: int
    mismatches: list[Mismatch]


@cache
def checker() -> Path:
    """The checker, built once in a test session."""
    program = scratch_folder() / "callcheck"
    sources = sorted(map(str, _SOURCES.glob("*.c")))
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *sources, "-o", program], check=True)
    return program


def _symbol(elf: ELFFile, table: str, name: str) -> Any:
    section = elf.get_section_by_name(table)
    assert isinstance(section, SymbolTableSection)
    found = section.get_symbol_by_name(name)
    assert found, f"{name} is not in {table}"
    return found[0].entry


@cache
def _stack_switches() -> list[str]:
    """Options that tell the checker where libc changes stacks: the code of setcontext and swapcontext."""
    options = []
    with _LIBC.open("rb") as file:
        elf = ELFFile(file)
        segments = [s.header for s in elf.iter_segments("PT_LOAD")]
        for name in ("setcontext", "swapcontext"):
            symbol = _symbol(elf, ".dynsym", name)
            segment = next(s for s in segments if s.p_vaddr <= symbol.st_value < s.p_vaddr + s.p_filesz)
            offset = symbol.st_value - segment.p_vaddr + segment.p_offset
            options += ["--switch", f"{_LIBC.name}:{offset}:{offset + symbol.st_size}"]
    return options


def main_distance(program: Path) -> int:
    """How far ``main`` lies from the entry point, whichever address the program is loaded to."""
    with program.open("rb") as file:
        elf = ELFFile(file)
        address: int = _symbol(elf, ".symtab", "main").st_value
        entry: int = elf.header.e_entry
        return address - entry


def _options(output: Path, limit: int | None, unwinders: tuple[str, ...]) -> list[str]:
    options = ["--output", str(output), *_stack_switches()]
    for name in unwinders:
        options += ["--unwinder", name]
    return options + (["--limit", str(limit)] if limit is not None else [])


def check_calls(
    program: Path, *arguments: str, limit: int | None = None, unwinders: tuple[str, ...] = ()
) -> tuple[CallReport, str]:
    """Run ``program`` from main on under the checker; what was seen, and the program's standard output.

    ``unwinders`` are names of further files that may drop return addresses. Every step takes some 22 microseconds.
    """
    output = scratch_folder() / f"{program.name}.callcheck.json"
    command = [str(checker()), *_options(output, limit, unwinders), "--main", str(main_distance(program)), "--"]
    done = subprocess.run([*command, str(program), *arguments], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"the checker failed: {done.stderr}")
    return read_report(output), done.stdout


def attach_command(pid: int, output: Path, *, limit: int | None = None, unwinders: tuple[str, ...] = ()) -> list[str]:
    """The command that checks a process which has stopped itself with SIGSTOP, from there on."""
    return [str(checker()), *_options(output, limit, unwinders), "--attach", str(pid)]


def read_report(path: Path) -> CallReport:
    """The report that the checker has written to ``path``."""
    content = json.loads(path.read_text())
    mismatches = [Mismatch(m["file"], m["offset"], m["pc"], m["expected"], m["actual"]) for m in content["mismatches"]]
    return CallReport(**content | {"mismatches": mismatches})
