"""Small ELF files for the tests of images, built from source text, each at most once in a test session."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from glob import glob
from pathlib import Path

import pytest

from tests.support.build import scratch_folder

__all__ = ["compile_text", "copy_of", "installed", "run", "symbol_addresses"]

_SUFFIXES = {"gcc": ".c", "g++": ".cpp", "clang": ".c", "clang++": ".cpp", "musl-gcc": ".c", "as": ".S", "rustc": ".rs"}


def run(*command: str | Path, folder: Path | None = None) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@cache
def compile_text(source: str, flags: str = "-O2", compiler: str = "gcc", name: str = "program") -> Path:
    """The file a compiler makes of ``source`` ("as": assembly through gcc). Skips the test without the compiler."""
    program = compiler if compiler != "as" else "gcc"
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    folder = Path(tempfile.mkdtemp(prefix="elf-", dir=scratch_folder()))
    text = folder / f"source{_SUFFIXES[compiler]}"
    text.write_text(source)
    output = folder / name
    libraries = [flag for flag in flags.split() if flag.startswith("-l")]
    others = [flag for flag in flags.split() if not flag.startswith("-l")]
    # clang leaves what -gsplit-dwarf splits off where it is run.
    run(program, *others, text, "-o", output, *libraries, folder=folder)
    return output


def copy_of(path: Path, name: str = "copy") -> Path:
    """A copy in a folder of its own, to be changed."""
    folder = Path(tempfile.mkdtemp(prefix="elf-", dir=scratch_folder()))
    return Path(shutil.copy2(path, folder / name))


def installed(path: str) -> Path:
    """A real file of this machine, the last that a pattern matches; skips the test where there is none."""
    found = sorted(glob(path))
    if not found:
        pytest.skip(f"{path} is not installed")
    return Path(found[-1])


def symbol_addresses(path: Path) -> dict[str, int]:
    """Name to address of all defined symbols, as nm sees them."""
    lines = (line.split() for line in run("nm", path).splitlines())
    return {parts[2]: int(parts[0], 16) for parts in lines if len(parts) == 3}
