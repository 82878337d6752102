"""Opening images: what a file is, and one clear sentence for everything that is none."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from shadowgraph.errors import UsageError
from shadowgraph.image import image_from_bytes, lookup_dynamic, open_image
from shadowgraph.target.modules import read_modules
from tests.support.elf_files import compile_text, copy_of, installed, run

HELLO = """
#include <stdio.h>
_Thread_local int counter;
int main(int count, char **words) { counter += count; printf("%d\\n", counter); return 0; }
"""
LIBRARY = "int twice(int x) { return 2 * x; }"


def refusal(path: Path | str) -> str:
    with pytest.raises(UsageError) as caught:
        open_image(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def patched(offset: int, value: bytes) -> Path:
    path = copy_of(compile_text(HELLO))
    data = bytearray(path.read_bytes())
    data[offset : offset + len(value)] = value
    path.write_bytes(data)
    return path


def test_a_missing_file_is_named(tmp_path):
    assert "no file" in refusal(tmp_path / "nothing")


def test_a_directory_is_no_program(tmp_path):
    assert "directory" in refusal(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "regular file" in refusal(pipe)


def test_an_empty_file_is_no_program(tmp_path):
    (tmp_path / "empty").touch()
    assert "empty" in refusal(tmp_path / "empty")


def test_a_script_is_told_with_its_interpreter(tmp_path):
    script = tmp_path / "script"
    script.write_text("#! /usr/bin/env python3\nprint()\n")
    assert "script" in refusal(script)
    assert "/usr/bin/env python3" in refusal(script)


def test_text_is_not_elf(tmp_path):
    (tmp_path / "text").write_text("hello")
    assert "not an ELF" in refusal(tmp_path / "text")


def test_a_32_bit_program_is_refused():
    assert "32-bit" in refusal(patched(4, b"\x01"))
    assert "32-bit x86" in refusal(patched(18, struct.pack("<H", 3)))


def test_another_architecture_is_named():
    assert "ARM64" in refusal(patched(18, struct.pack("<H", 183)))


def test_big_endian_is_refused():
    assert "big-endian" in refusal(patched(5, b"\x02"))


def test_object_files_and_core_dumps_are_told_apart():
    assert "object file" in refusal(compile_text(LIBRARY, "-c", name="library.o"))
    assert "core dump" in refusal(patched(16, struct.pack("<H", 4)))


@pytest.mark.parametrize("size", [4, 19, 63, 200, 5000])
def test_a_file_cut_short_is_called_damaged(size):
    path = copy_of(compile_text(HELLO))
    os.truncate(path, size)
    assert "damaged" in refusal(path)


def test_a_file_without_its_section_headers_still_opens():
    path = copy_of(compile_text(HELLO))
    with path.open("rb") as stream:
        sections = ELFFile(stream)["e_shoff"]
    os.truncate(path, sections)
    image = open_image(path)
    assert image.interpreter
    assert any("section headers" in remark for remark in image.elf.remarks)
    assert [text.name for text in image.text] == [""]


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ("-O2 -pie -fPIE", {"is_pie", "is_dynamic", "is_program"}),
        ("-O2 -no-pie -fno-pie", {"is_dynamic", "is_program"}),
        ("-O2 -static -no-pie", {"is_static", "is_program"}),
        ("-O2 -static-pie", {"is_pie", "is_static", "is_static_pie", "is_program"}),
    ],
)
def test_kinds_of_programs_are_told_apart(flags, kind):
    image = open_image(compile_text(HELLO, flags))
    names = ("is_pie", "is_dynamic", "is_static", "is_static_pie", "is_program")
    assert {name for name in names if getattr(image, name)} == kind


def test_a_library_is_no_program():
    image = open_image(compile_text(LIBRARY, "-O2 -shared -fPIC -Wl,-soname,libtwice.so.1"))
    assert image.soname == "libtwice.so.1"
    assert image.interpreter is None
    assert not image.is_program
    assert not image.is_static


def test_libc_and_the_dynamic_linker_are_libraries():
    for path in ("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"):
        image = open_image(installed(path))
        assert not image.is_program
        assert not image.is_static
        assert image.soname == Path(path).name


@pytest.mark.parametrize("flags", ["-O2", "-O2 -no-pie", "-O2 -static", "-O2 -fuse-ld=gold", "-O2 -s -fcf-protection"])
def test_headers_agree_with_readelf(flags):
    path = compile_text(HELLO, flags)
    image = open_image(path)
    with path.open("rb") as stream:
        oracle = ELFFile(stream)
        loads = [segment for segment in oracle.iter_segments() if segment["p_type"] == "PT_LOAD"]
        assert [(s.address, s.memory_size, s.file_offset, s.file_size) for s in image.segments] == [
            (s["p_vaddr"], s["p_memsz"], s["p_offset"], s["p_filesz"]) for s in loads
        ]
        assert [s.executable for s in image.segments] == [bool(s["p_flags"] & 1) for s in loads]
        assert image.entry == oracle["e_entry"]
        dynamic = oracle.get_section_by_name(".dynamic")
        needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")] if dynamic else []
        assert image.needed == needed
    assert image.build_id in run("readelf", "-n", path)
    assert len(image.build_id) == 40


def test_thread_local_storage_is_described():
    tls = open_image(compile_text(HELLO)).tls
    assert tls is not None
    assert (tls.file_size, tls.memory_size, tls.align) == (0, 4, 4)


def test_bytes_are_read_by_address():
    path = compile_text(HELLO)
    image = open_image(path)
    with path.open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".text")
        assert image.read(section["sh_addr"], section["sh_size"]) == section.data()
    with pytest.raises(UsageError, match="no 4 bytes"):
        image.read(1 << 40, 4)


def test_plt_stubs_are_separable():
    image = open_image(compile_text(HELLO, "-O2 -Wl,-z,lazy -Wl,-z,ibtplt"))
    assert {text.name for text in image.text if text.is_plt} >= {".plt", ".plt.sec"}
    assert ".text" in {text.name for text in image.text if not text.is_plt}


def test_bytes_in_memory_are_an_image_too():
    image = image_from_bytes(compile_text(HELLO).read_bytes(), "[in memory]")
    assert image.path == "[in memory]"
    assert image.needed == ["libc.so.6"]
    with pytest.raises(UsageError, match=r"\[cut\] is damaged"):
        image_from_bytes(compile_text(HELLO).read_bytes()[:100], "[cut]")


@pytest.mark.parametrize("first", [0, 0x10000])
def test_where_a_library_lies_is_told_by_where_its_first_byte_is_mapped(first):
    path = compile_text(LIBRARY, f"-shared -fPIC -Wl,-Ttext-segment={first:#x}")
    image = open_image(path)
    library = ctypes.CDLL(str(path))
    loaded = next(module for module in read_modules(os.getpid()) if module.path == str(path))
    function = ctypes.cast(library.twice, ctypes.c_void_p).value
    assert image.bias(loaded.base) + lookup_dynamic(image, "twice") == function
