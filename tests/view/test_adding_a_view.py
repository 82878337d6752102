"""docs/adding-a-view.md: the view it adds works as it is written there."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

from shadowgraph.trace.convert import convert
from tests.support.synthetic import Call, Recording

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "adding-a-view.md").read_text()
MODULES = ("shadowgraph.analysis.starts", "shadowgraph.view.busiest", "shadowgraph.cli.busiest")


def test_the_view_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^    ```python\n(.*?)^    ```", TEXT, re.S | re.M)
    assert len(blocks) == len(MODULES)
    for name, block in zip(MODULES, blocks, strict=True):
        module = types.ModuleType(name)
        exec(re.sub(r"^    ", "", block, flags=re.M), module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
    calls = [
        Call(millisecond * 1_000_000 + n, 0, 0, 1) for millisecond, count in ((2, 3), (7, 5)) for n in range(count)
    ]
    folder = Recording({0: calls}).write(tmp_path / "a.sgt")
    convert(folder)
    result = CliRunner().invoke(sys.modules[MODULES[2]].command, [str(folder)])
    assert result.output.splitlines() == ["Calls  Time", "    5  7 ms", "    3  2 ms"]
