"""docs/trace-format.md: its examples run and agree, and its tables name the columns there are."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from shadowgraph.trace.convert import convert
from shadowgraph.trace.framing import KINDS
from shadowgraph.trace.tables import FUNCTIONS_SCHEMA, PROCESSES_SCHEMA, THREADS_SCHEMA, calls_schema
from tests.support.synthetic import Recording, simulate_calls

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "trace-format.md").read_text()
EXAMPLES = dict(re.findall(r"With (\w+)[^\n]*:\n\n```python\n(.*?)```", TEXT, re.S))
RECORDING = Recording({0: simulate_calls(1, 500), 1: simulate_calls(2, 300)}, functions={1: "main"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = RECORDING.write(tmp_path_factory.mktemp("docs") / "app.sgt")
    convert(path)
    return path


def run(example: str, folder: Path) -> str:
    command = [sys.executable, "-c", example]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        command, cwd=folder.parent, env=environment, capture_output=True, text=True, check=True
    ).stdout


def expected() -> list[tuple[str, int]]:
    counts = Counter(call.function for thread in (0, 1) for call in RECORDING.expected(thread))
    named = {"main" if function == 1 else f"f{function}": count for function, count in counts.items()}
    return sorted(named.items(), key=lambda item: (-item[1], item[0]))[:10]


@pytest.mark.parametrize("tool", ["pyarrow", "polars", "DuckDB", "pandas"])
def test_each_tool_finds_the_functions_that_were_called_most(tool: str, folder: Path) -> None:
    answer = ast.literal_eval(run(EXAMPLES[tool], folder))
    if isinstance(answer, dict):
        rows = list(answer.items())
    else:
        rows = [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in answer]
    assert rows == expected()


def test_the_example_with_our_own_reader(folder: Path) -> None:
    assert run(EXAMPLES["Shadowgraph"], folder) == "0 {'missed': 0, 'dropped': 0, 'filtered': 0}\n"


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("calls", calls_schema(values=True)),
        ("functions", FUNCTIONS_SCHEMA),
        ("threads", THREADS_SCHEMA),
        ("processes", PROCESSES_SCHEMA),
    ],
)
def test_the_tables_name_all_columns_in_order(file: str, schema: object, folder: Path) -> None:
    section = TEXT.split(f"## {file}.parquet")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", section, re.M)
    names = [name for cell, _ in cells for name in re.findall(r"`(\w+)`", cell)]
    assert names == schema.names  # type: ignore[attr-defined]
    written = pq.read_schema(folder / f"{file}.parquet")
    assert written.names == names[: len(written.names)]
    for cell, kinds in cells:
        own = re.findall(r"`(\w+)`", cell)
        types = [kind for kind in kinds.split(", ") if kind != "may be null"]
        for name, kind in zip(own, types if len(types) == len(own) else types * len(own), strict=True):
            assert str(schema.field(name).type) == kind  # type: ignore[attr-defined]
            assert schema.field(name).nullable == ("may be null" in kinds)  # type: ignore[attr-defined]


def test_all_kinds_of_chunks_are_listed() -> None:
    section = TEXT.split("## calls.spool")[1].split("\n## ")[0]
    listed = dict(re.findall(r"^\| (\d+) (\w+) \|", section, re.M))
    assert listed == {str(number): kind for number, kind in enumerate(KINDS) if kind != "records"}
