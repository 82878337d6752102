"""The numbers in docs/limits.md are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shadowgraph.agent import layout
from shadowgraph.agent.inject import Settings

ROOT = Path(__file__).resolve().parents[2]


def macro(file: str, name: str) -> int:
    found = re.search(rf"^#define {name} (\d+)", (ROOT / "native" / "agent" / file).read_text(), re.M)
    assert found, f"native/agent/{file} defines no {name}"
    return int(found[1])


def limit(what: str) -> list[int]:
    """The numbers in the row of the table that begins with some words."""
    found = re.search(rf"^\| {what}[^|]*\|([^|]*)\|", (ROOT / "docs" / "limits.md").read_text(), re.M)
    assert found, f"docs/limits.md has no row on {what}"
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", found[1])]


# Of a block of frames, the first and the last are sentinels.
FRAMES = macro("state.h", "SG_FRAMES") // layout.BLOCK_FRAMES * (layout.BLOCK_FRAMES - 2)


@pytest.mark.parametrize(
    ("what", "numbers"),
    [
        ("calls in flight", [FRAMES]),
        ("nesting depth", [(1 << layout.DEPTH_BITS) - 1]),
        ("threads at one time", [Settings().threads]),
        ("users of one process", [layout.USERS]),
        ("functions that are counted", [layout.COUNTER_CELLS - 1]),
        ("functions of all histograms", [layout.PAGE_NUMBERS - layout.COUNTER_CELLS // layout.PAGE_CELLS]),
        ("functions in one recording", [layout.ESCAPE_FIRST - 1]),
        ("captured values", [layout.VALUES_LIMIT, layout.STRING_LIMIT]),
        ("a chain of tail calls", [macro("frames.c", "TAIL_CHAIN")]),
    ],
)
def test_the_page_has_the_limit_of_the_code(what: str, numbers: list[int]) -> None:
    assert limit(what) == numbers


def test_the_architecture_page_has_the_number_of_frames() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert text.count(f"{macro('state.h', 'SG_FRAMES'):,} × {macro('state.h', 'SG_STRIDE')} bytes") == 2
    assert f"about {FRAMES // 1000},000 calls in flight" in text
