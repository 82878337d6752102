"""What is on disk: ELF images, their functions, symbols, imports and unwind tables.

Source lines (``lines``), parameters (``signatures``) and where the ABI puts them (``abi``) are modules of their own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shadowgraph.image.demangle import demangle
from shadowgraph.image.functions import FunctionTable, Part, Source
from shadowgraph.image.image import Image, Segment, TextRange, TlsSegment, image_from_bytes, open_image
from shadowgraph.image.imports import Import, SlotKind, lookup_dynamic, read_imports
from shadowgraph.image.reasons import SENTENCES, Reason

if TYPE_CHECKING:
    from shadowgraph.image.discover import read_functions
    from shadowgraph.image.special import reason_by_name
    from shadowgraph.image.unwind import Cie, Fde, UnwindTable, read_unwind_table

__all__ = [
    "SENTENCES",
    "Cie",
    "Fde",
    "FunctionTable",
    "Image",
    "Import",
    "Part",
    "Reason",
    "Segment",
    "SlotKind",
    "Source",
    "TextRange",
    "TlsSegment",
    "UnwindTable",
    "demangle",
    "image_from_bytes",
    "lookup_dynamic",
    "open_image",
    "read_functions",
    "read_imports",
    "read_unwind_table",
    "reason_by_name",
]

# What is needed only where a file is read that has not been read before.
_LATER = {
    "read_functions": "discover",
    "reason_by_name": "special",
    **dict.fromkeys(("Cie", "Fde", "UnwindTable", "read_unwind_table"), "unwind"),
}


def __getattr__(name: str) -> Any:
    """Load a part when it is used for the first time."""
    if name in _LATER:
        return getattr(import_module(f"shadowgraph.image.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
