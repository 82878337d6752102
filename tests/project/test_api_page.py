"""docs/api.md: every example is run, and prints what stands below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shadowgraph
from tests.support.build import compile_files
from tests.support.manners import usual_environment

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "api.md").read_text()
EXAMPLES = re.findall(r"^## ([^\n]*)\n(?:(?!^## ).)*?```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.S | re.M)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("api")
    (place / "server.c").write_text(re.findall(r"```c\n(.*?)```", TEXT, re.S)[0])
    compile_files("gcc", [place / "server.c"], place / "server", ("-O1", "-Wall", "-Werror"))
    return place


def test_every_example_says_what_it_prints() -> None:
    assert len(EXAMPLES) == TEXT.count("```python") == TEXT.count("```text") >= 6


@pytest.mark.parametrize(("title", "script", "output"), EXAMPLES, ids=[title for title, *_ in EXAMPLES])
def test_an_example_prints_what_stands_below_it(title: str, script: str, output: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=usual_environment() | {"HOME": os.environ.get("HOME", "/")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stderr, done.stdout) == ("", output), title


def test_every_public_name_is_on_the_page() -> None:
    assert [name for name in shadowgraph.__all__ if name not in ("Target", "Trace") and f"sg.{name}(" not in TEXT] == []


def test_the_readme_leads_here() -> None:
    assert "(docs/api.md)" in (ROOT / "README.md").read_text()
