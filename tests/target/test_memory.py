"""Gaps between mappings, and what /proc says of a process's memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadowgraph.target.memory import Mapping, Memory, find_gap, read_mappings
from shadowgraph.target.modules import read_modules

PAGE = 4096
USER_END = 0x7FFF_FFFF_F000
REACH = (1 << 31) - (1 << 20)


@st.composite
def address_spaces(draw: st.DrawFn) -> tuple[list[Mapping], int, int]:
    """Mappings in order, and the bounds of one of them (or of a few neighbours), crowded and sparse ones."""
    gaps = st.one_of(st.just(0), st.integers(1, 40), st.integers(0, 1 << 20), st.integers(1 << 18, 1 << 34))
    at, mappings = draw(st.integers(16, 1 << 12)) * PAGE, []
    for _ in range(draw(st.integers(1, 12))):
        at += draw(gaps) * PAGE
        end = at + draw(st.one_of(st.integers(1, 64), st.integers(1, 1 << 19))) * PAGE
        if end > USER_END:
            break
        mappings.append(Mapping(at, end, "r-xp", 0, ""))
        at = end
    if not mappings:
        mappings = [Mapping(0x400000, 0x401000, "r-xp", 0, "")]
    first = draw(st.integers(0, len(mappings) - 1))
    last = draw(st.integers(first, min(first + 2, len(mappings) - 1)))
    return mappings, mappings[first].start, mappings[last].end


def free(mappings: list[Mapping], low: int, high: int) -> list[tuple[int, int]]:
    """The free ranges of whole pages outside [low, high), the slow and obvious way."""
    edges = [0x10000, *[edge for m in mappings for edge in (m.start, m.end)], USER_END]
    ranges = zip(edges[::2], edges[1::2], strict=True)
    return [(start, end) for start, end in ranges if start < end and (end <= low or start >= high)]


@settings(max_examples=500, deadline=None)
@given(address_spaces(), st.one_of(st.integers(1, 1 << 16), st.integers(1, 1 << 30)))
def test_a_gap_is_free_aligned_and_within_reach_of_every_byte_and_found_if_there_is_one(
    space: tuple[list[Mapping], int, int], size: int
) -> None:
    mappings, low, high = space
    found = find_gap(mappings, low, high, size)
    pages = -(-size // PAGE) * PAGE
    possible = [
        (start, end)
        for start, end in free(mappings, low, high)
        if min(end, low + REACH) // PAGE * PAGE - -(-max(start, high - REACH) // PAGE) * PAGE >= pages
    ]
    if found is None:
        assert not possible
        return
    assert found % PAGE == 0
    assert found >= 0x10000 and found + pages <= USER_END
    assert all(found + pages <= m.start or found >= m.end for m in mappings)
    assert max(high, found + pages) - min(low, found) <= REACH
    assert possible


def test_a_gap_leaves_room_for_the_heap_and_the_stack_to_grow() -> None:
    executable, heap = Mapping(0x5555_0000_0000, 0x5555_0010_0000, "r-xp", 0, "/a"), Mapping(0, 0, "rw-p", 0, "[heap]")
    for pages in (0, 10, 100):
        heap = Mapping(executable.end + pages * PAGE, executable.end + (pages + 32) * PAGE, "rw-p", 0, "[heap]")
        found = find_gap([executable, heap], executable.start, executable.end, 1 << 20)
        assert found is not None and found < executable.start
    below = Mapping(0x10000, executable.start, "---p", 0, "")
    found = find_gap([below, executable, heap], executable.start, executable.end, 1 << 20)
    assert found is not None and found - heap.end > 1 << 30


@pytest.mark.parametrize(
    "name", ["two words", " leading", "trailing ", "a\rb", "a\nb", "tab\there", "\udcff", "x (deleted)", "ä"]
)
def test_mappings_of_files_with_strange_names_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(bytes(PAGE))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), PAGE):
        mine = [mapping for mapping in read_mappings(os.getpid()) if mapping.path.startswith(str(tmp_path))]
    # The kernel writes a line feed as \012 (seq_file).
    assert [mapping.path for mapping in mine] == [str(path).replace("\n", "\\012")]
    assert (mine[0].offset, mine[0].permissions, mine[0].end - mine[0].start) == (0, "rw-s", PAGE)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A small shared library with a function `number` that returns 1."""
    return compiled(tmp_path / "folder with blanks" / "lib number.so", 1)


def compiled(path: Path, number: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    source = f"int number(void) {{ return {number}; }}".encode()
    subprocess.run(["gcc", "-shared", "-fPIC", "-xc", "-", "-o", path], input=source, check=True)
    return path


def mapped(path: Path) -> mmap.mmap:
    """The file mapped executable. (The loader would take the second file of one name for the first.)"""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)


def bytes_of(opened: str) -> bytes:
    return Path(opened).read_bytes()


def test_a_module_with_blanks_in_its_path_is_found_where_it_is(library: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    module = next(module for module in read_modules(os.getpid()) if module.path == str(library))
    assert module.name == library.name
    assert module.opened == str(library)
    address = ctypes.cast(loaded.number, ctypes.c_void_p).value
    assert address is not None and module.low <= address < module.high
    memory = Memory(os.getpid())
    assert memory.read(module.base, 4) == b"\x7fELF"
    memory.close()


def test_the_file_of_a_module_is_the_one_that_is_mapped_even_if_it_was_deleted(library: Path) -> None:
    ctypes.CDLL(str(library))
    content = library.read_bytes()
    library.unlink()
    module = next(module for module in read_modules(os.getpid()) if module.path == str(library))
    assert bytes_of(module.opened) == content


def test_the_file_of_a_module_is_the_one_that_is_mapped_even_if_another_took_its_name(library: Path) -> None:
    old = library.read_bytes()
    with mapped(library):
        library.unlink()
        compiled(library, 2)
        with mapped(library):
            modules = [module for module in read_modules(os.getpid()) if module.path == str(library)]
            assert sorted(bytes_of(module.opened) for module in modules) == sorted([old, library.read_bytes()])


def test_a_module_whose_name_says_deleted_is_not_taken_for_a_deleted_one(tmp_path: Path) -> None:
    path = compiled(tmp_path / "libodd.so (deleted)", 1)
    ctypes.CDLL(str(path))
    module = next(module for module in read_modules(os.getpid()) if module.path.startswith(str(tmp_path)))
    assert (module.path, module.opened) == (str(path), str(path))


def test_two_modules_of_one_name_that_were_both_deleted_are_two(tmp_path: Path) -> None:
    path = compiled(tmp_path / "libagain.so", 1)
    with mapped(path):
        path.unlink()
        compiled(path, 2)
        with mapped(path):
            path.unlink()
            modules = [module for module in read_modules(os.getpid()) if module.path == str(path)]
            assert len({bytes_of(module.opened) for module in modules}) == 2
            assert len({module.base for module in modules}) == 2


def test_a_file_that_is_loaded_twice_is_two_modules(library: Path) -> None:
    with mapped(library) as first, mapped(library) as second:
        modules = [module for module in read_modules(os.getpid()) if module.path == str(library)]
        assert [module.high - module.low for module in modules] == [-(-len(first) // PAGE) * PAGE] * 2
        assert len(second) == len(first)


def test_executable_memory_that_is_no_module_is_none() -> None:
    file, everything = os.memfd_create("jit"), mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    os.ftruncate(file, PAGE)
    with mmap.mmap(file, PAGE, prot=everything), mmap.mmap(-1, PAGE, prot=everything):
        assert any("memfd:jit" in mapping.path for mapping in read_mappings(os.getpid()))
        assert not [module for module in read_modules(os.getpid()) if "jit" in module.path or "zero" in module.path]
    os.close(file)


def test_memory_that_is_not_there_cannot_be_read_and_strings_end_where_they_do() -> None:
    memory = Memory(os.getpid())
    text = ctypes.create_string_buffer(b"short\0rest")
    assert memory.read_string(ctypes.addressof(text)) == "short"
    with pytest.raises(OSError):
        memory.read(8, 8)
    area = mmap.mmap(-1, PAGE)
    area.write(b"x" * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    assert memory.read_string(address, 100) == "x" * 128
    memory.write(address, b"y" * 10)
    assert area[:12] == b"y" * 10 + b"xx"
    memory.close()
