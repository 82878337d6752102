"""What views do on a terminal, and in a pipe whose reader leaves."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import shadowgraph
from shadowgraph.trace.convert import convert
from shadowgraph.view.report import SORT_KEYS
from tests.support.synthetic import Recording, simulate_calls

COMMAND = [sys.executable, "-c", "import sys; from shadowgraph.cli.main import main; main(sys.argv[1:])"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(shadowgraph.__file__).parents[1]), "TERM": "xterm"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recording = Recording(
        {0: simulate_calls(1, 20_000, functions=80)}, functions={n: f"function_{n}_" + "x" * 90 for n in range(1, 80)}
    )
    path = recording.write(tmp_path_factory.mktemp("terminal") / "a.sgt", 1000)
    convert(path)
    return path


def on_terminal(columns: int, *arguments: str | Path, **environment: str) -> list[str]:
    """What a command prints on a terminal of that width."""
    controller, terminal = pty.openpty()
    environment = ENVIRONMENT | {"COLUMNS": str(columns), "LINES": "50"} | environment
    with subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=terminal, env=environment) as process:
        os.close(terminal)
        output = b""
        while True:
            try:
                piece = os.read(controller, 65536)
            except OSError:  # a terminal ends with EIO
                break
            if not piece:
                break
            output += piece
    os.close(controller)
    assert process.returncode == 0
    return output.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("columns", [70, 100, 200])
def test_lines_fit_the_terminal_and_long_tables_end(folder: Path, columns: int) -> None:
    for view in ("report", "graph"):
        lines = on_terminal(columns, view, folder, NO_COLOR="1")
        assert all(len(line) <= columns for line in lines if not line.startswith("(")), view
    lines = on_terminal(columns, "report", folder, NO_COLOR="1")
    assert any(line.startswith("... and 30 more functions") for line in lines)


@pytest.mark.parametrize("sort", SORT_KEYS)
def test_the_column_that_lines_are_sorted_by_is_the_last_to_go(folder: Path, sort: str) -> None:
    for columns in (100, 50):
        title = on_terminal(columns, "report", "--sort", sort, folder, NO_COLOR="1")[0].split()
        assert (sort if sort.startswith("p") else sort.capitalize()) in title


def test_colour_only_where_it_is_wanted(folder: Path) -> None:
    assert "\033[1m" in on_terminal(100, "report", folder)[0]
    assert "\033" not in "".join(on_terminal(100, "report", folder, NO_COLOR="1"))
    piped = subprocess.run([*COMMAND, "report", folder], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert "\033" not in piped.stdout
    assert any(line.endswith("x" * 90) for line in piped.stdout.splitlines())


@pytest.mark.parametrize("view", ["replay", "report", "graph"])
def test_a_reader_that_leaves_early_is_no_error(folder: Path, view: str) -> None:
    with subprocess.Popen(
        [*COMMAND, view, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
