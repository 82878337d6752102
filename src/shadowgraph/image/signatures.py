"""Parameters and results of functions, from debug information (libdw), for ``--auto-args``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.image.debug_types import TypeReader
from shadowgraph.image.debugfiles import DEBUG_ROOTS
from shadowgraph.image.dwarf_codes import Tag
from shadowgraph.image.image import Image
from shadowgraph.image.libdw import (
    DebugInformation,
    Die,
    NoDebugInformation,
    Unit,
    children,
    functions_of,
    name_of,
    open_debug_information,
    tag_of,
)
from shadowgraph.image.lines import UnitMap
from shadowgraph.image.value_types import ValueType

__all__ = ["Parameter", "Signature", "SignatureTable", "has_source_signature", "read_signatures"]

# Clones that the compiler made with other parameters than the source says, or of a part of the body.
_CHANGED = re.compile(r"\.(?:constprop|isra|part)\.\d+")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; ``name`` is "" where the source gives none."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and gives back, as its source says."""

    name: str
    parameters: tuple[Parameter, ...]
    result: ValueType
    is_variadic: bool


class SignatureTable:
    """Finds signatures by entry address. ``remark`` is a sentence where there are none to be found, else ""."""

    def __init__(self, debug: DebugInformation | None, remark: str = "") -> None:
        self.remark = remark
        self._debug = debug
        self._units = UnitMap(debug.units()) if debug is not None else UnitMap([])
        self._types = TypeReader()
        self._entries: dict[int, dict[int, Die]] = {}

    def find(self, addresses: Sequence[int] | npt.NDArray[np.uint64]) -> list[Signature | None]:
        """The signature of the function that begins at each address; None where debug information has none."""
        found: list[Signature | None] = []
        for unit, address in zip(self._units.find(addresses), map(int, addresses), strict=True):
            die = self._functions(unit).get(address) if unit is not None else None
            found.append(self._signature(die) if die is not None else None)
        return found

    def _functions(self, unit: Unit) -> dict[int, Die]:
        """Entry address to function of a unit, read when it is asked for first."""
        key = id(unit)
        if key not in self._entries:
            self._entries[key] = dict(functions_of(unit))
        return self._entries[key]

    def _signature(self, die: Die) -> Signature:
        parameters, is_variadic = list[Parameter](), False
        for child in children(die):
            tag = tag_of(child)
            if tag == Tag.FORMAL_PARAMETER:
                parameters.append(Parameter(name_of(child), self._types.of(child)))
            is_variadic |= tag == Tag.UNSPECIFIED_PARAMETERS
        return Signature(name_of(die), tuple(parameters), self._types.of(die), is_variadic)


def has_source_signature(name: str) -> bool:
    """Whether a symbol names a function with the parameters of its source: not so for some of the compiler's clones."""
    return _CHANGED.search(name) is None


def read_signatures(image: Image, debug_roots: Sequence[str] = DEBUG_ROOTS) -> SignatureTable:
    """The signatures of an image's functions; an empty table with a remark where nothing tells them."""
    try:
        return SignatureTable(open_debug_information(image, debug_roots))
    except NoDebugInformation as reason:
        return SignatureTable(None, str(reason))
