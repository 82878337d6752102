"""What is checked in fits every machine."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Put together from parts, so that this file does not find itself.
MACHINE_PATHS = re.compile(
    "|".join(["/" + "work/", r"(?<![}\w])/" + r"root\b", "/home" + r"/\w", r"\.py" + "env", "file:" + "///"])
)
HOSTS = re.compile(
    "|".join(["pypi" + r"\.", "pythonhosted" + r"\.", "npm" + r"js\.", "deb" + r"\.debian", "crates" + r"\.io"])
)
LONGEST_FILE = 450


@cache
def tracked() -> list[Path]:
    """The files that are checked in; of an unpacked source archive, those that would be."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    ignored = {".venv", "build", "dist", "_native", "__pycache__"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not ignored & set(path.relative_to(ROOT).parts)]


def lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    return found


def test_no_file_knows_a_path_of_one_machine() -> None:
    assert not lines_that_match(MACHINE_PATHS)


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert not lines_that_match(HOSTS)


def test_nothing_that_is_built_is_checked_in() -> None:
    built = {".so", ".o", ".pyc", ".whl", ".parquet"}
    assert not [path for path in tracked() if path.suffix in built]


@pytest.mark.parametrize("folder", ["src", "native"])
def test_files_stay_short_enough_to_be_read(folder: str) -> None:
    generated = ROOT / "src" / "shadowgraph" / "agent" / "layout.py"
    sources = [path for path in tracked() if path.is_relative_to(ROOT / folder) and path != generated]
    assert sources
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources}
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FILE}


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in tracked():
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert not broken
