"""What is on disk: ELF images, their functions, symbols, imports and unwind tables.

Source lines (``lines``), parameters (``signatures``) and where the ABI puts them (``abi``) are modules of their own.
"""

from shadowgraph.image.demangle import demangle
from shadowgraph.image.discover import read_functions
from shadowgraph.image.functions import FunctionTable, Part, Source
from shadowgraph.image.image import Image, Segment, TextRange, TlsSegment, image_from_bytes, open_image
from shadowgraph.image.imports import Import, SlotKind, lookup_dynamic, read_imports
from shadowgraph.image.reasons import SENTENCES, Reason
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
