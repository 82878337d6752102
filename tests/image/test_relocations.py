"""The pointers that a linker leaves to the dynamic linker, in each form in which they may be written down."""

from __future__ import annotations

import re

import pytest

from shadowgraph.image import open_image
from shadowgraph.image.relocations import relocated_pointers
from tests.support.elf_files import compile_text, run, symbol_addresses

# More than 63 in a row, and some with gaps.
SOURCE = (
    "".join(f"static int f{n}(void) {{ return {n}; }}\n" for n in range(200))
    + "int (*table[])(void) = {" + ", ".join(f"f{n}" for n in range(200)) + "};\n"
    + "struct { long no; int (*yes)(void); char c; } sparse[] = {" + ", ".join(f"{{{n}, f{n}, 1}}" for n in range(99))
    + "};\nint main(void) { return table[3]() + sparse[2].yes(); }\n"
)  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
def test_pointers_are_found_in_the_order_of_their_places(packed: bool) -> None:
    path = compile_text(SOURCE, "-O1 -pie -fPIE" + (" -Wl,-z,pack-relative-relocs" if packed else ""))
    assert ("RELR" in run("readelf", "-dW", path)) == packed
    address = symbol_addresses(path)
    table, sparse = [address[f"f{n}"] for n in range(200)], [address[f"f{n}"] for n in range(99)]
    found = relocated_pointers(open_image(path)).tolist()
    of_functions = [pointer for pointer in found if pointer in set(table)]
    first, second = (table, sparse) if address["table"] < address["sparse"] else (sparse, table)
    assert of_functions == first + second


def test_pointers_of_a_real_library_are_those_of_readelf() -> None:
    path = "/lib/x86_64-linux-gnu/libc.so.6"
    text = run("readelf", "-rW", path)
    told = {int(line.split()[-1], 16) for line in text.splitlines() if re.search(r"R_X86_64_I?RELATIV", line)}
    found = set(relocated_pointers(open_image(path)).tolist())
    assert told <= found
    assert found == told or ".relr.dyn" in text


def test_a_program_at_fixed_addresses_has_none() -> None:
    assert len(relocated_pointers(open_image(compile_text(SOURCE, "-O1 -no-pie -fno-pie")))) == 0
