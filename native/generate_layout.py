"""Write src/shadowgraph/agent/layout.py: what the C headers say, for Python.

The headers under native/include/shadowgraph are the one place where the layout of shared memory and of raw records is
written down. This program lets the C compiler read them and writes what it understood:

* every macro and enumerator ``SG_NAME`` that is an integer becomes a constant ``NAME``;
* every ``struct sg_name`` (or union) becomes a numpy dtype ``name_dtype`` with the compiler's own offsets and size.

The result is checked in, so that building needs neither this program nor pyelftools; a test holds it equal to a fresh
run.

    python native/generate_layout.py            # rewrite the file
    python native/generate_layout.py --check    # exit status 1 if it is out of date
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "native" / "include"
OUTPUT = ROOT / "src" / "shadowgraph" / "agent" / "layout.py"

# DW_AT_encoding (DWARF 5, section 7.8) to the letter of a numpy type.
ENCODINGS = {2: "u", 4: "f", 5: "i", 6: "i", 7: "u", 8: "u"}


def headers(include: Path = INCLUDE) -> list[str]:
    """The headers to read, as they are named in an #include, in alphabetical order."""
    return sorted(str(path.relative_to(include)) for path in (include / "shadowgraph").glob("*.h"))


def compiler(*arguments: str, include: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run gcc on a program that sees the headers."""
    command = ["gcc", "-std=gnu11", f"-I{include}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=check)


def include_lines(names: Iterable[str]) -> str:
    """The head of each program that is compiled here."""
    lines = [f"#include <{name}>" for name in ["stdint.h", "stddef.h", "stdio.h", *names]]
    return "\n".join(lines) + "\n"


def integer_macros(names: list[str], include: Path, folder: Path) -> list[str]:
    """Object-like macros SG_* that the compiler accepts as integer constants, in the order of the headers."""
    texts = [(include / name).read_text() for name in names]
    candidates = [match for text in texts for match in re.findall(r"^#\s*define\s+(SG_\w+)(?!\()\b", text, re.M)]
    candidates = list(dict.fromkeys(name for name in candidates if not any(f"{name}(" in text for text in texts)))
    program = folder / "probe.c"
    head = include_lines(names)
    first_line = head.count("\n") + 1
    program.write_text(head + "".join(f'_Static_assert(({name}) * 0 == 0, "");\n' for name in candidates))
    errors = compiler("-fsyntax-only", "-fmax-errors=0", str(program), include=include, check=False).stderr
    refused = {int(line) for line in re.findall(r"probe\.c:(\d+):\d+: error", errors)}
    return [name for number, name in enumerate(candidates, first_line) if number not in refused]


def macro_values(names: list[str], include: Path, folder: Path) -> dict[str, int]:
    """The values of all integer macros, found by running a program that prints them."""
    macros = integer_macros(names, include, folder)
    program, binary = folder / "values.c", folder / "values"
    prints = "".join(
        f'    printf(({name}) > 0 ? "{name} %llu\\n" : "{name} %lld\\n", (unsigned long long)({name}));\n'
        for name in macros
    )
    program.write_text(include_lines(names) + "int main(void)\n{\n" + prints + "    return 0;\n}\n")
    compiler("-w", "-o", str(binary), str(program), include=include)
    lines = subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


class DebugTypes:
    """The types of the headers, as the compiler describes them in DWARF."""

    def __init__(self, names: list[str], include: Path, folder: Path) -> None:
        from elftools.elf.elffile import ELFFile

        program, self._object = folder / "types.c", folder / "types.o"
        program.write_text(include_lines(names))
        options = ["-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types", "-c", "-o", str(self._object)]
        compiler(*options, str(program), include=include)
        self._file = self._object.open("rb")
        unit = next(ELFFile(self._file).get_dwarf_info().iter_CUs())
        self._children = list(unit.get_top_DIE().iter_children())

    def close(self) -> None:
        """Give the object file back."""
        self._file.close()

    def enumerators(self) -> Iterator[tuple[str, int]]:
        """All enumerators named SG_*."""
        for entry in self._children:
            if entry.tag == "DW_TAG_enumeration_type":
                for child in entry.iter_children():
                    name = child.attributes["DW_AT_name"].value.decode()
                    if name.startswith("SG_"):
                        yield name, child.attributes["DW_AT_const_value"].value

    def structures(self) -> Iterator[tuple[str, Any]]:
        """All complete structs and unions named sg_*, in the order of their definition."""
        for entry in self._children:
            name = entry.attributes.get("DW_AT_name")
            if entry.tag not in ("DW_TAG_structure_type", "DW_TAG_union_type") or name is None:
                continue
            if name.value.startswith(b"sg_") and "DW_AT_byte_size" in entry.attributes:
                yield name.value.decode(), entry


def python_type(entry: Any) -> str:
    """The numpy type of a DWARF type, as Python source."""
    if entry.tag in ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_atomic_type"):
        return python_type(entry.get_DIE_from_attribute("DW_AT_type"))
    if entry.tag == "DW_TAG_pointer_type":
        return '"<u8"'
    if entry.tag == "DW_TAG_base_type":
        size = entry.attributes["DW_AT_byte_size"].value
        return f'"<{ENCODINGS[entry.attributes["DW_AT_encoding"].value]}{size}"'
    if entry.tag == "DW_TAG_enumeration_type":
        return f'"<u{entry.attributes["DW_AT_byte_size"].value}"'
    if entry.tag == "DW_TAG_array_type":
        ranges = [child for child in entry.iter_children() if child.tag == "DW_TAG_subrange_type"]
        lengths = [array_length(child) for child in ranges]
        element = entry.get_DIE_from_attribute("DW_AT_type")
        if is_char(element) and len(lengths) == 1:
            return f'"S{lengths[0]}"'
        shape = ", ".join(map(str, lengths)) + ("," if len(lengths) == 1 else "")
        return f"({python_type(element)}, ({shape}))"
    name = entry.attributes.get("DW_AT_name")
    if name is not None and name.value.startswith(b"sg_"):
        return dtype_name(name.value.decode())
    if entry.tag in ("DW_TAG_structure_type", "DW_TAG_union_type"):
        return f"({', '.join(dtype_lines(entry))})"
    raise SystemExit(f"a field has the type {entry.tag}, which this program does not know")


def is_char(entry: Any) -> bool:
    """Whether a type is plain char: an array of it is text."""
    name = entry.attributes.get("DW_AT_name")
    return name is not None and name.value == b"char"


def array_length(subrange: Any) -> int:
    """The number of elements that a dimension of an array has; 0 for a flexible array."""
    if "DW_AT_count" in subrange.attributes:
        return int(subrange.attributes["DW_AT_count"].value)
    if "DW_AT_upper_bound" in subrange.attributes:
        return int(subrange.attributes["DW_AT_upper_bound"].value) + 1
    return 0


def dtype_name(struct_name: str) -> str:
    """What the dtype of a struct is called in Python."""
    return struct_name.removeprefix("sg_") + "_dtype"


def fields(entry: Any, base: int = 0) -> Iterator[tuple[str, str, int]]:
    """Name, type and offset of each field; the members of anonymous structs and unions count as the outer one's."""
    for child in entry.iter_children():
        if child.tag != "DW_TAG_member":
            continue
        offset = base + child.attributes["DW_AT_data_member_location"].value if location(child) else base
        inner = child.get_DIE_from_attribute("DW_AT_type")
        if "DW_AT_bit_size" in child.attributes:
            raise SystemExit("bit fields have no place in a shared layout")
        if "DW_AT_name" not in child.attributes:
            yield from fields(inner, offset)
        else:
            yield child.attributes["DW_AT_name"].value.decode(), python_type(inner), offset


def location(member: Any) -> bool:
    """Whether a member says where it lies (those of a union do not)."""
    return "DW_AT_data_member_location" in member.attributes


def dtype_lines(entry: Any) -> Iterator[str]:
    """The source of a dtype, line by line."""
    rows = list(fields(entry))
    yield "np.dtype("
    yield "    {"
    yield '        "names": [' + ", ".join(f'"{name}"' for name, _, _ in rows) + "],"
    yield '        "formats": [' + ", ".join(kind for _, kind, _ in rows) + "],"
    yield '        "offsets": [' + ", ".join(str(offset) for _, _, offset in rows) + "],"
    yield f'        "itemsize": {entry.attributes["DW_AT_byte_size"].value},'
    yield "    }"
    yield ")"


def python_integer(value: int) -> str:
    """Small numbers in decimal, large ones and masks in hexadecimal."""
    return str(value) if abs(value) < 0x10000 else hex(value)


def generate(include: Path = INCLUDE) -> str:
    """The whole text of layout.py."""
    names = headers(include)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        constants = macro_values(names, include, folder)
        types = DebugTypes(names, include, folder)
        try:
            constants |= dict(types.enumerators())
            structures = [(struct, list(dtype_lines(entry))) for struct, entry in types.structures()]
        finally:
            types.close()
    lines = ['"""Generated from native/include/shadowgraph/*.h by native/generate_layout.py: do not edit."""', ""]
    lines += ["from __future__ import annotations", ""]
    if structures:
        lines += ["import numpy as np", ""]
    lines += [f"{name.removeprefix('SG_')} = {python_integer(value)}" for name, value in constants.items()]
    for struct, source in structures:
        lines += ["", f"{dtype_name(struct)} = {source[0]}", *source[1:]]
    return ruff_format("\n".join(lines) + "\n")


def ruff_format(text: str) -> str:
    """The text as the project's formatter wants it."""
    command = [sys.executable, "-m", "ruff", "format", "--config", str(ROOT / "pyproject.toml"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main(arguments: list[str]) -> int:
    """Write the file, or compare it."""
    text = generate()
    if "--check" in arguments:
        return 0 if OUTPUT.exists() and OUTPUT.read_text() == text else 1
    OUTPUT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
