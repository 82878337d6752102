"""Which mappings of a file are one loading of it, however its linker laid out the segments."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from shadowgraph.ops.known_modules import KnownModule, KnownModules
from shadowgraph.stack.code import CodeMap
from shadowgraph.target.memory import Memory, read_mappings
from shadowgraph.target.modules import Module, read_modules

SOURCE = b"""
int number(void) { return 1; }
int changed = 1, *pointer = &changed, zero[5000];
char room[16 * 56] = "room for program headers";
"""
RTLD_NOW, LM_ID_NEWLM = 2, -1

LINKINGS = {
    "bfd": "",
    "noseparate": "-Wl,-z,noseparate-code",
    "far apart": "-Wl,-z,max-page-size=0x200000",
    "headers left out": "-Wl,-n",
    "gold": "-fuse-ld=gold",
    "gold with text in the middle": "-fuse-ld=gold -Wl,--rosegment",
    "mold": "-fuse-ld=mold",
    "mold with pages apart": "-fuse-ld=mold -Wl,-z,separate-code",
}
LINKERS = {"-fuse-ld=gold": "ld.gold", "-fuse-ld=mold": "mold"}


class Place(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def link(folder: Path, linking: str) -> Path:
    for option, linker in LINKERS.items():
        if option in linking and shutil.which(linker) is None:
            pytest.skip(f"needs {linker}")
    path = folder / "libnumber.so"
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", *linking.split(), "-xc", "-", "-o", path]
    subprocess.run(command, input=SOURCE, check=True, capture_output=True)
    return path


def place_of(function: int) -> tuple[int, int]:
    """Where the loader says that a function's file lies, and the function."""
    place = Place()
    assert ctypes.CDLL(None).dladdr(ctypes.c_void_p(function), ctypes.byref(place))
    return place.base, function


def load(path: Path) -> tuple[int, int]:
    function = ctypes.cast(ctypes.CDLL(str(path)).number, ctypes.c_void_p).value
    assert function is not None
    return place_of(function)


def load_again(path: Path) -> tuple[int, int]:
    """The same file in a namespace of its own."""
    loader = ctypes.CDLL(None)
    loader.dlmopen.restype = loader.dlsym.restype = ctypes.c_void_p
    loader.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return place_of(loader.dlsym(loader.dlmopen(LM_ID_NEWLM, str(path).encode(), RTLD_NOW), b"number"))


def modules_of(path: Path) -> list[Module]:
    return [module for module in read_modules(os.getpid()) if module.path == str(path)]


def check_place(module: Module, place: tuple[int, int]) -> None:
    known = KnownModule(module.opened, module.path)
    row = known.functions.preferred_names.index("number")
    bias = known.bias(module)
    assert (module.base, int(known.functions.start[row]) + bias) == place
    mine = [part for part in read_mappings(os.getpid()) if part.path == module.path and part.start >= module.low]
    last = max(segment.address + segment.file_size for segment in known.image.segments) + bias
    assert module.high == next(part.end for part in mine if part.start < last <= part.end)


@pytest.mark.parametrize("linking", LINKINGS.values(), ids=LINKINGS.keys())
def test_a_library_is_one_module_where_the_loader_put_it(linking: str, tmp_path: Path) -> None:
    path = link(tmp_path, linking)
    place = load(path)
    (module,) = modules_of(path)
    check_place(module, place)


@pytest.mark.parametrize("linking", ["", "-fuse-ld=mold"], ids=["bfd", "mold"])
def test_a_library_in_two_namespaces_is_two_modules(linking: str, tmp_path: Path) -> None:
    path = link(tmp_path, linking)
    places = sorted([load(path), load_again(path), load_again(path)])
    for module, place in zip(modules_of(path), places, strict=True):
        check_place(module, place)
    code = CodeMap(Memory(os.getpid()), KnownModules())
    code.refresh()
    for _, function in places:
        found = code.find(function)
        assert found is not None and found.name_at(function) == "number"


@pytest.mark.parametrize("linking", ["", "-fuse-ld=mold"], ids=["bfd", "mold"])
def test_a_file_that_is_mapped_to_be_read_too_is_no_other_module(linking: str, tmp_path: Path) -> None:
    path = link(tmp_path, linking)
    with open(path, "rb") as file:
        before = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        place = load(path)
        behind = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for _ in range(3)]
    (module,) = modules_of(path)
    check_place(module, place)
    assert all(data[:4] == b"\x7fELF" for data in (before, *behind))


def test_program_headers_may_lie_anywhere_in_what_is_loaded(tmp_path: Path) -> None:
    """As patchelf leaves them, in a segment that it appends."""
    path = link(tmp_path, "")
    data = bytearray(path.read_bytes())
    offset, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    headers, to = data[offset : offset + 56 * count], data.index(b"room for program headers")
    data[offset : offset + 56 * count] = bytes(56 * count)
    data[to : to + 56 * count] = headers
    struct.pack_into("<Q", data, 32, to)
    path.write_bytes(data)
    place = load(path)
    (module,) = modules_of(path)
    check_place(module, place)
