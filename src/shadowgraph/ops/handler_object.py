"""The shared object that handlers are in: what it must have, and what it asks of whoever loads it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import numpy as np

from shadowgraph.errors import UsageError
from shadowgraph.image import Image, image_from_bytes, lookup_dynamic
from shadowgraph.image.relocations import read_relocations
from shadowgraph.image.symbols import dynamic_symbols, section_symbols

__all__ = ["HandlerObject", "read_handlers"]

# System V gABI, "Dynamic Section" and "Symbol Table"; AMD64 supplement, 4.4.1.
_DT_INIT, _DT_FINI, _DT_INIT_ARRAY, _DT_FINI_ARRAY, _DT_PREINIT_ARRAY = 12, 13, 25, 26, 32
_SHN_UNDEF, _STB_WEAK, _STT_FUNC, _STT_GNU_IFUNC, _SHT_SYMTAB = 0, 2, 2, 10, 2
_R_X86_64_RELATIVE = 8
_ET_DYN = 3


@dataclass(frozen=True, slots=True)
class HandlerObject:
    """A shared object with handlers.

    ``entry`` and ``exit`` are image addresses, to which the load bias is to be added; None where there is no such
    handler. ``obstacles`` says, a clause each, why it needs a dynamic loader; without any, mapping its segments and
    adding the bias to its relative relocations is all that there is to loading it. ``warnings`` are the compiler's.
    """

    name: str
    content: bytes
    entry: int | None
    exit: int | None
    obstacles: tuple[str, ...] = ()
    warnings: str = ""


def read_handlers(content: bytes, name: str, entry: str = "", exit: str = "", warnings: str = "") -> HandlerObject:
    """Check a shared object, and find the functions ``entry`` and ``exit`` in it, where they are named.

    ``name`` is what messages call it. UsageError if it is none for this processor, or has no such functions.
    """
    if not content:
        raise UsageError(f"{name} is empty, so it is no shared object")
    image = image_from_bytes(content, name)
    if image.elf.type != _ET_DYN or image.is_program:
        raise UsageError(f"{name} is a program; handlers are taken from shared objects (cc -shared -fPIC)")
    places = [_function(image, function) if function else None for function in (entry, exit)]
    return HandlerObject(name, content, places[0], places[1], tuple(_obstacles(image)), warnings)


def _function(image: Image, name: str) -> int:
    address = lookup_dynamic(image, name)
    if address is None:
        near = difflib.get_close_matches(name, _names_of_functions(image), 1)
        meant = "" if not near else "; it is static" if near == [name] else f"; did you mean {near[0]}?"
        raise UsageError(f"{image.path}: there is no function {name} in it that others can see{meant}")
    symbols = dynamic_symbols(image)
    assert symbols is not None
    rows = symbols.find_name(name.encode())
    if (symbols.kind[rows] == _STT_GNU_IFUNC).any():
        raise UsageError(f"{image.path}: {name} is an indirect function, and a handler has to be a plain one")
    if not image.is_executable(np.array([address], np.uint64))[0]:
        raise UsageError(f"{image.path}: {name} is not a function")
    return address


def _names_of_functions(image: Image) -> list[str]:
    """The names of the functions in it, as far as they are known."""
    names: list[bytes] = []
    for symbols in (dynamic_symbols(image), section_symbols(image.elf, _SHT_SYMTAB)):
        if symbols is not None:
            defined = (symbols.rows["section"] != _SHN_UNDEF) & (symbols.kind == _STT_FUNC)
            names += symbols.raw_names(np.flatnonzero(defined))
    return [name.decode(errors="replace") for name in dict.fromkeys(names)]


def _obstacles(image: Image) -> list[str]:
    """What of it only a dynamic loader can see to."""
    found = []
    if image.needed:
        found.append(f"it needs {', '.join(image.needed)}")
    symbols = dynamic_symbols(image)
    if symbols is not None:
        strong = (symbols.rows["section"] == _SHN_UNDEF) & (symbols.binding != _STB_WEAK)
        strong[:1] = False  # the first symbol is none
        missing = [name.decode(errors="replace") for name in symbols.raw_names(np.flatnonzero(strong))]
        found += [f"it needs the symbols {', '.join(missing)}"] if missing else []
    if any(image.dynamic_value(tag) for tag in (_DT_INIT, _DT_INIT_ARRAY, _DT_PREINIT_ARRAY)):
        found.append("it has constructors")
    if any(image.dynamic_value(tag) for tag in (_DT_FINI, _DT_FINI_ARRAY)):
        found.append("it has destructors")
    if image.tls is not None:
        found.append("it has thread-local variables")
    kinds = set(read_relocations(image)["kind"].tolist()) - {_R_X86_64_RELATIVE}
    if kinds and not found:
        found.append("it has relocations by name")
    return found
