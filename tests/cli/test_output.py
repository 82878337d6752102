"""What commands print for other programs: JSON, CSV, pipes that end, no colour."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shadowgraph
from tests.support.commands import run as run_here
from tests.support.manners import program, recorded, recorder, usual_environment

SHADOWGRAPH = [sys.executable, "-m", "shadowgraph.cli.main"]
ROUNDS = 20
NUMBERS = ["total_ns", "self_ns", "mean_ns", "min_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns"]
KEYS = ["function", "module", "calls", *NUMBERS, "open", "unwound"]
AROUND = ["missed", "dropped", "filtered", "end", "state", "problems"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("output") / "t.sgt"
    ended = recorded([program("manners_counted", "o1", "-pthread"), str(ROUNDS), "2"], trace=path)
    assert (ended.status, ended.errors) == (0, "")
    return path


def test_report_as_json_has_exactly_the_documented_keys(trace: Path) -> None:
    report = json.loads(run_here("report", trace, "--json").output)
    assert list(report) == ["functions", *AROUND]
    assert (report["missed"], report["dropped"]) == (0, 0)
    for function in report["functions"]:
        assert list(function) == KEYS
        assert isinstance(function["function"], str) and isinstance(function["module"], str)
        assert all(isinstance(function[key], int) for key in KEYS if key not in ("function", "module", "mean_ns"))
        assert (
            function["min_ns"] <= function["p50_ns"] <= function["p95_ns"] <= function["p99_ns"] <= function["max_ns"]
        )
        assert 0 <= function["self_ns"] <= function["total_ns"]
    by_name = {function["function"]: function for function in report["functions"]}
    assert by_name["leaf"]["calls"] == ROUNDS * 2 * 100 and by_name["middle"]["calls"] == ROUNDS * 2
    assert by_name["main"]["module"] == "manners_counted"


@pytest.mark.parametrize(
    ("by", "key", "fields"),
    [
        ("thread", "threads", ["thread", "tid", "pid", "name"]),
        ("module", "modules", ["module"]),
        ("process", "processes", ["process", "pid", "command"]),
    ],
)
def test_report_by_something_else_says_what_each_line_is(by: str, key: str, fields: list[str], trace: Path) -> None:
    report = json.loads(run_here("report", trace, "--by", by, "--json").output)
    assert list(report) == [key, *AROUND]
    assert all(list(row) == [*fields, "calls", *NUMBERS, "open", "unwound"] for row in report[key])
    with shadowgraph.open(trace) as opened:
        assert sum(row["calls"] for row in report[key]) == len(opened.calls)


def test_csv_has_the_same_rows_as_json(trace: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run_here("report", trace, "--csv").output)))
    functions = json.loads(run_here("report", trace, "--json").output)["functions"]
    assert rows == [{key: str(value) for key, value in function.items()} for function in functions]


def test_functions_as_json_has_exactly_the_documented_keys() -> None:
    path = program("manners_counted", "o1", "-pthread")
    listed: dict[str, Any] = json.loads(run_here("functions", path, "--json").output)
    assert list(listed) == ["total", "hookable", "functions"]
    assert listed["total"] == len(listed["functions"])
    assert listed["hookable"] == sum(function["hookable"] for function in listed["functions"])
    for function in listed["functions"]:
        assert list(function) == ["function", "module", "address", "size", "hookable", "reason"]
        assert function["module"] == "manners_counted"
        assert function["hookable"] == (function["reason"] is None)
    names = {function["function"]: function for function in listed["functions"]}
    assert names["leaf"]["hookable"] and not names["_start"]["hookable"]
    refused = json.loads(run_here("functions", path, "--json", "--refused").output)
    assert refused["total"] == listed["total"]
    assert refused["functions"] == [function for function in listed["functions"] if not function["hookable"]]


@pytest.mark.parametrize("arguments", [["replay"], ["report", "--json"], ["report", "--csv"], ["graph"], ["functions"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_is_no_error(arguments: list[str], unbuffered: str, trace: Path) -> None:
    what = str(trace) if arguments[0] != "functions" else "bash"
    environment = usual_environment() | ({"PYTHONUNBUFFERED": unbuffered} if unbuffered else {})
    pipe = 'set -o pipefail; "$@" | head -c 1 >/dev/null; echo ${PIPESTATUS[0]}'
    command = ["bash", "-c", pipe, "bash", *SHADOWGRAPH, *arguments, what]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stderr == ""
    assert done.stdout in ("0\n", "141\n")


def test_where_stdout_is_closed_or_full_the_views_say_so(trace: Path) -> None:
    for view in ("report", "replay", "graph"):
        command = ["sh", "-c", '"$@" >&-', "sh", *SHADOWGRAPH, view, str(trace)]
        done = subprocess.run(command, capture_output=True, text=True, env=usual_environment())
        assert (done.stderr, done.returncode) == (
            "shadowgraph: standard output is closed, so there is nowhere to print to\n", 2,
        )  # fmt: skip
        command = ["sh", "-c", '"$@" >/dev/full', "sh", *SHADOWGRAPH, view, str(trace)]
        done = subprocess.run(command, capture_output=True, text=True, env=usual_environment())
        assert (done.stderr, done.returncode) == (
            "shadowgraph: standard output cannot be written to: no space left on device\n", 2,
        )  # fmt: skip


def on_terminal(arguments: list[str], **environment: str) -> str:
    controller, terminal = pty.openpty()
    variables = usual_environment() | {"TERM": "xterm"} | environment
    with subprocess.Popen([*SHADOWGRAPH, *arguments], stdout=terminal, stderr=terminal, env=variables) as process:
        os.close(terminal)
        output = b""
        while True:
            try:
                output += os.read(controller, 65536)
            except OSError:  # EIO: all of it has been read
                break
    os.close(controller)
    assert process.returncode == 0
    return output.decode()


def test_colour_is_for_terminals_and_for_who_wants_it(trace: Path) -> None:
    for view in ("report", "graph"):
        assert "\033[1m" in on_terminal([view, str(trace)])
        assert "\033[" not in on_terminal([view, str(trace)], NO_COLOR="1")
        assert "\033[" not in on_terminal([view, str(trace)], TERM="dumb")
        assert "\033[" not in run_here(view, trace).output
    assert "\033[" not in on_terminal(["report", "--json", str(trace)])


def test_the_summary_is_on_stderr_and_quiet_leaves_it_out(tmp_path: Path) -> None:
    command = [program("manners_counted", "o1", "-pthread"), "10", "2"]
    quiet = recorded(command, trace=tmp_path / "a.sgt")
    assert quiet.errors == ""
    start = [argument for argument in recorder(trace=tmp_path / "b.sgt") if argument != "-q"]
    done = subprocess.run([*start, *command], capture_output=True, text=True, env=usual_environment())
    assert done.stdout == quiet.output
    lines = done.stderr.splitlines()
    with shadowgraph.open(tmp_path / "b.sgt") as opened:
        assert lines[0].startswith(f"shadowgraph: {len(opened.calls):,} calls of ")
    assert "in 3 threads of 1 process" in lines[0]
    assert len(lines) == 3
