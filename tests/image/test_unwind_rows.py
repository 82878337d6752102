"""Unwind rows of real files, against those that readelf prints."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shadowgraph.image import open_image, read_unwind_table
from shadowgraph.image.unwind_rows import Rule, RuleKind, UnwindRow, row_at

FILES = [path for path in ("/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6") if Path(path).exists()]
NAMES = ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", *(f"r{number}" for number in range(8, 16)), "ra"]


def printed(row: UnwindRow, columns: list[str]) -> list[str]:
    """A row as readelf prints it: the CFA, then the columns."""
    assert row.cfa_code or row.cfa_register is not None
    cfa = "exp" if row.cfa_code else f"{NAMES[row.cfa_register or 0]}{row.cfa_offset:+d}"
    return [cfa, *(printed_rule(row.rules.get(NAMES.index(name))) for name in columns)]


def printed_rule(rule: Rule | None) -> str:
    if rule is None or rule.kind is RuleKind.UNDEFINED:
        return "u"
    if rule.kind is RuleKind.SAVED_AT:
        return f"c{rule.number:+d}"
    return {
        RuleKind.SAME: "s",
        RuleKind.IS_CFA_PLUS: f"v{rule.number:+d}",
        RuleKind.IN_REGISTER: NAMES[rule.number],
        RuleKind.SAVED_AT_EXPRESSION: "exp",
        RuleKind.IS_EXPRESSION: "vexp",
    }[rule.kind]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs binutils")
@pytest.mark.parametrize("path", FILES)
def test_rows_are_those_of_readelf(path: str) -> None:
    table = read_unwind_table(open_image(path))
    command = ["readelf", "-W", "--debug-dump=frames-interp", path]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    columns: list[str] = []
    compared, range_end = 0, 0
    for line in text.splitlines():
        if found := re.search(r"FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)", line):
            range_end = int(found.group(2), 16)
        elif " CIE " in line:
            range_end = 0
        elif line.strip().startswith("LOC"):
            columns = line.split()[2:]
        elif range_end and (found := re.match(r"([0-9a-f]{16}) (.*)", line)):
            address = int(found.group(1), 16)
            fde = table.find(address)
            if address >= range_end or fde is None or compared > 40_000:
                continue
            shown = re.sub(r"r\d+ \((\w+)\)", r"\1", found.group(2)).split()  # a register in another
            assert printed(row_at(fde, address), columns) == shown, line
            compared += 1
    assert compared > 5_000


def test_a_row_holds_until_the_next_begins() -> None:
    table = read_unwind_table(open_image(FILES[0]))
    for index in range(0, len(table), max(1, len(table) // 300)):
        fde = table.fde(index)
        rows = [row_at(fde, address) for address in range(fde.start, fde.start + min(fde.size, 200))]
        changes = sum(before != after for before, after in itertools.pairwise(rows))
        assert changes <= len(fde.instructions)
        assert rows[0] == row_at(fde, fde.start)
