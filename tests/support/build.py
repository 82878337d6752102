"""Building the programs of tests/programs in many ways, each at most once in a test session."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["PROGRAMS", "VARIANTS", "BuildError", "Variant", "available", "build", "compile_files", "scratch_folder"]

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"


class BuildError(Exception):
    """A program did not build; the text is the compiler's."""


@dataclass(frozen=True)
class Variant:
    """One way to build: the family of the compiler, its flags, and whether symbols are removed afterwards.

    ``tool`` names a program that must be there for the variant to be possible, beside the compiler.
    """

    flags: tuple[str, ...]
    family: str = "gcc"
    strip: bool = False
    tool: str = ""


def _gcc(flags: str, *, strip: bool = False, tool: str = "") -> Variant:
    return Variant(tuple(flags.split()), "gcc", strip, tool)


VARIANTS = {
    "o0": _gcc("-O0"),
    "o1": _gcc("-O1"),
    "o2": _gcc("-O2"),
    "o3": _gcc("-O3"),
    "os": _gcc("-Os"),
    "framepointer": _gcc("-O2 -fno-omit-frame-pointer"),
    "cet": _gcc("-O2 -fcf-protection=full"),
    "nopie": _gcc("-O2 -no-pie -fno-pie"),
    "noplt": _gcc("-O2 -fno-plt"),
    "now": _gcc("-O2 -Wl,-z,now"),
    "lazy": _gcc("-O2 -Wl,-z,lazy"),
    "noseparate": _gcc("-O2 -Wl,-z,noseparate-code"),
    "gold": _gcc("-O2 -fuse-ld=gold", tool="ld.gold"),
    "goldicf": _gcc("-O2 -fuse-ld=gold -ffunction-sections -Wl,--icf=safe", tool="ld.gold"),
    "mold": _gcc("-O2 -fuse-ld=mold", tool="mold"),
    "lto": _gcc("-O2 -flto=auto"),
    "sections": _gcc("-O2 -ffunction-sections -Wl,--gc-sections"),
    "stackprotector": _gcc("-O2 -fstack-protector-all -fstack-clash-protection -D_FORTIFY_SOURCE=2"),
    "patchable": _gcc("-O2 -fpatchable-function-entry=5"),
    "large": _gcc("-O2 -mcmodel=large -fno-pie -no-pie"),
    "native": _gcc("-O3 -march=native"),
    "stripped": _gcc("-O2", strip=True),
    "musl": Variant(("-O2",), "musl"),
    "clang0": Variant(("-O0",), "clang"),
    "clang2": Variant(("-O2",), "clang"),
    "clangcet": Variant(("-O2", "-fcf-protection=full"), "clang"),
    "asan": _gcc("-O1 -fsanitize=address"),
    "ubsan": _gcc("-O1 -fsanitize=undefined"),
    "tsan": _gcc("-O1 -fsanitize=thread"),
}

_COMPILERS = {
    ("gcc", ".c"): ("gcc", "-std=gnu11"),
    ("gcc", ".cpp"): ("g++", "-std=c++17"),
    ("musl", ".c"): ("musl-gcc", "-std=gnu11"),
    ("clang", ".c"): ("clang", "-std=gnu11"),
    ("clang", ".cpp"): ("clang++", "-std=c++17"),
}
_ALWAYS = ("-g1", "-Wall", "-Wextra", "-Wno-unknown-warning-option", "-Wno-infinite-recursion", "-Wno-clobbered")


@cache
def scratch_folder() -> Path:
    """A folder of this test session for what is built and recorded; removed when the session ends."""
    folder = Path(tempfile.mkdtemp(prefix="shadowgraph-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def available(variant: str, suffix: str = ".c") -> bool:
    """Whether this machine has the tools for a variant."""
    chosen = VARIANTS[variant]
    compiler = _COMPILERS.get((chosen.family, suffix))
    return compiler is not None and all(shutil.which(tool) for tool in (compiler[0], chosen.tool) if tool)


@cache
def build(source: Path, variant: str = "o2", flags: tuple[str, ...] = ()) -> Path:
    """The program built from ``source`` with the flags of a variant, then ``flags``. Raises BuildError."""
    chosen = VARIANTS[variant]
    program = _place(source.stem, variant) / source.stem
    compile_files(chosen.family, [source], program, (*chosen.flags, *flags))
    if chosen.strip:
        whole = program.with_name(program.name + ".symbols")
        shutil.copy2(program, whole)
        subprocess.run(["strip", program], check=True)
    return program


def compile_files(family: str, sources: list[Path], output: Path, flags: tuple[str, ...]) -> None:
    """Compile and link ``sources``; the first one's language decides the compiler. Raises BuildError."""
    compiler = _COMPILERS[family, sources[0].suffix]
    # Libraries must follow the sources that use them.
    libraries = tuple(flag for flag in flags if flag.startswith("-l"))
    others = tuple(flag for flag in flags if not flag.startswith("-l"))
    command = [*compiler, *_ALWAYS, *others, *map(str, sources), "-o", str(output), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROGRAMS)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stderr}")


def _place(stem: str, variant: str) -> Path:
    """A folder of its own for each build, so that programs keep their plain names."""
    return Path(tempfile.mkdtemp(prefix=f"{stem}-{variant}-", dir=scratch_folder()))
