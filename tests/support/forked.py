"""The program live_forked and its libraries: processes that load them after a fork, each for itself."""

from __future__ import annotations

from functools import cache

from tests.support.build import PROGRAMS, compile_files, scratch_folder
from tests.support.manners import program

__all__ = ["forked"]


@cache
def _library(number: int) -> str:
    path = scratch_folder() / f"libforked{number}.so"
    flags = ("-shared", "-fPIC", "-O1", f"-DNUMBER={number}")
    compile_files("gcc", [PROGRAMS / "live_forked.shared.c"], path, flags)
    return str(path)


def forked() -> list[str]:
    """The command: `open N` loads libforkedN.so, which has count_N and inner_N. They are of one size."""
    return [program("live_forked"), *map(_library, (1, 2, 3))]
