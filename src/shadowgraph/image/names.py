"""Which of several names of one function to show, and which names are not of functions."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from shadowgraph.image.elf import Bytes

__all__ = [
    "AGENT_SONAME",
    "COLD_SUFFIX",
    "Standing",
    "cold_parent",
    "displayed",
    "ends_like_cold_part",
    "is_nameless",
    "name_by_address",
    "preference",
]

AGENT_SONAME = "shadowgraph-agent.so"

# gcc: f.cold, f.cold.12 (before gcc 9), f.isra.0.cold; clang's function splitting: f.cold; propeller: f.__part.3.
COLD_SUFFIX = re.compile(r"\.(?:cold(?:\.\d+)?|__part\.\d+)$")


def displayed(raw: bytes) -> str:
    """A symbol's name without its version: linkers write ``memcpy@@GLIBC_2.14`` into .symtab."""
    return raw.split(b"@", 1)[0].decode("utf-8", "surrogateescape")


def name_by_address(address: int) -> str:
    """What a function is called that only the unwind table knows."""
    return f"sub_{address:x}"


def is_nameless(name: str) -> bool:
    """Whether a name is one that was given for want of another."""
    return re.fullmatch(r"sub_[0-9a-f]+", name) is not None


class Standing(IntEnum):
    """How good a name a symbol's is. That of an indirect function means what its resolver chooses, not the resolver."""

    GLOBAL = 0
    WEAK = 1
    LOCAL = 2
    INDIRECT = 3


def preference(name: str, standing: Standing) -> tuple[int, bool, bool, int, str]:
    """Sort key, smallest first. ``write`` is weak beside ``__write``, as ``index`` is beside ``strchr``.

    So: by standing, but weak symbols on a par with global ones; then names without leading underscores; then global
    before weak; then short ones; then by the alphabet.

    The prefixes of mangled names (``_Z``, ``_R``) are not underscores that anybody chose.
    """
    hidden = name.startswith("_") and not name.startswith(("_Z", "_R"))
    rank = Standing.GLOBAL if standing == Standing.WEAK else standing
    return rank, hidden, standing == Standing.WEAK, len(name), name


def cold_parent(name: str) -> str | None:
    """The function whose cold part this symbol names, or None if it names no cold part."""
    parent = COLD_SUFFIX.sub("", name)
    return parent if parent != name else None


def ends_like_cold_part(strings: Bytes, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which names, given by the offset of their end in ``strings``, may be those of cold parts.

    A cheap sieve before any name is decoded: the name ends in ``.cold`` or in a digit. :func:`cold_parent` decides.
    """
    before = np.maximum(ends[:, None] - np.arange(5, 0, -1), 0)
    last = strings[before] if len(strings) else np.zeros(before.shape, np.uint8)
    cold = (last == np.frombuffer(b".cold", np.uint8)).all(axis=1)
    numbered = (last[:, 4] >= ord("0")) & (last[:, 4] <= ord("9"))
    result: npt.NDArray[np.bool_] = cold | (numbered & (last[:, :4] == ord(".")).any(axis=1))
    return result
