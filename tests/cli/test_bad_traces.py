"""A trace that is damaged is read as far as it is whole, and every view says what is not; what is none is refused."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shadowgraph
from shadowgraph.errors import UsageError
from shadowgraph.trace.convert import convert
from shadowgraph.trace.folder import CALLS, CALLS_FOOTER, FUNCTIONS, MANIFEST, PROCESSES, SPOOL, THREADS
from tests.support.commands import Outcome, run
from tests.support.synthetic import Call, Recording, simulate_calls

VIEWS = ("report", "replay", "graph")
TABLES = (FUNCTIONS, THREADS, PROCESSES)
CALLS_MADE = 550


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    calls = {0: simulate_calls(1, 300), 1: simulate_calls(2, 200, start=5000), 5: simulate_calls(3, 50)}
    path = Recording(calls, processes={5: 1}, functions={1: "main"}).write(tmp_path_factory.mktemp("whole") / "a.sgt")
    convert(path)
    return path


@pytest.fixture
def trace(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "a.sgt"))


def cut(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def spoil(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + 8] = bytes(byte ^ 0xFF for byte in data[at : at + 8])
    path.write_bytes(data)


def replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "empty": lambda path: cut(path, 0),
    "cut off": lambda path: cut(path, 0.6),
    "garbage": lambda path: path.write_bytes(random.Random(1).randbytes(3000)),
    "a folder": replace_by_a_folder,
    "changed in the middle": lambda path: spoil(path, path.stat().st_size // 3),
    "changed at its end": lambda path: spoil(path, path.stat().st_size - 12),
}


def shown(outcome: Outcome) -> list[str]:
    """The sentences in a view about what is damaged."""
    return [line.removeprefix("# ") for line in outcome.lines if line.removeprefix("# ").startswith("damaged: ")]


def calls_in_replay(outcome: Outcome) -> int:
    lines = [line for line in outcome.lines if not line.startswith("#")]
    return sum("{" in line or line.rstrip().endswith(";") for line in lines)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_all_calls_are_shown_when_a_small_table_is_damaged(name: str, damage: str, trace: Path) -> None:
    DAMAGE[damage](trace / name)
    for view in VIEWS:
        outcome = run(view, trace)
        assert not outcome.error
        assert len(shown(outcome)) == 1 and name in shown(outcome)[0], outcome.output
    report = json.loads(run("report", "--json", trace).output)
    assert sum(function["calls"] for function in report["functions"]) == CALLS_MADE
    assert calls_in_replay(run("replay", trace)) == CALLS_MADE
    for by in ("thread", "process", "module"):
        assert not run("report", "--by", by, trace).error


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_calls_are_said_to_be_in_every_view(damage: str, trace: Path) -> None:
    DAMAGE[damage](trace / CALLS)
    for view in VIEWS:
        outcome = run(view, trace)
        if damage in ("missing", "a folder"):
            assert CALLS in outcome.error and str(trace) in outcome.error
        else:
            assert shown(outcome), outcome.output


def test_calls_and_the_copy_of_their_footer_damaged_is_a_refusal(trace: Path) -> None:
    cut(trace / CALLS, 0.5)
    cut(trace / CALLS_FOOTER, 0.5)
    for view in VIEWS:
        assert f"{trace / CALLS}: is damaged" in run(view, trace).error


def test_a_table_of_another_kind_in_a_place_is_noticed(trace: Path) -> None:
    shutil.copy(trace / THREADS, trace / FUNCTIONS)
    outcome = run("report", trace)
    assert shown(outcome) == [
        f"damaged: {FUNCTIONS} is of another kind than its name says; functions have numbers instead of names"
    ]
    shutil.copy(trace / THREADS, trace / CALLS)
    for view in VIEWS:
        assert "holds no calls" in run(view, trace).error


@pytest.mark.parametrize("text", [None, "", "{", "[" * 100_000, "\0\xff"])
def test_calls_are_read_without_a_manifest_and_that_is_said(text: str | None, trace: Path) -> None:
    if text is None:
        (trace / MANIFEST).unlink()
    else:
        (trace / MANIFEST).write_text(text)
    for view in VIEWS:
        outcome = run(view, trace)
        assert len(shown(outcome)) == 1 and shown(outcome)[0].startswith(f"damaged: {MANIFEST} is "), outcome.output
    assert calls_in_replay(run("replay", trace)) == CALLS_MADE


@pytest.mark.parametrize(
    "change",
    [
        {"missed": "x"}, {"dropped": None}, {"filtered": -0.5}, {"end": 5}, {"end": None}, {"problems": 7},
        {"build_ids": [1]}, {"program": 7}, {"state": []}, {"calls": {}}, {"missed": True},
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_manifest_is_left_out_and_said(change: dict[str, Any], trace: Path) -> None:
    manifest = json.loads((trace / MANIFEST).read_text())
    (trace / MANIFEST).write_text(json.dumps(manifest | change))
    (key,) = change
    for view in VIEWS:
        assert shown(run(view, trace)) == [f"damaged: {MANIFEST} is damaged: what it says of {key} was left out"]
    assert not run("report", "--lines", "--json", trace).error


@pytest.mark.parametrize("version", [2, 99, None, "1"])
def test_a_newer_trace_is_refused_with_what_to_do(version: object, trace: Path) -> None:
    manifest = json.loads((trace / MANIFEST).read_text())
    (trace / MANIFEST).write_text(json.dumps(manifest | {"version": version}))
    for view in VIEWS:
        error = run(view, trace).error
        assert error.startswith(f"{trace}: was recorded by a newer version of Shadowgraph")
        assert error.endswith("update Shadowgraph to read it")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "there is no such trace"),
        (lambda path: path.write_text("x"), "is not a trace"),
        (lambda path: path.mkdir(), f"is not a trace (it has no {MANIFEST})"),
        (lambda path: (path.mkdir(), (path / MANIFEST).write_text('{"name": "web"}')), "is not a trace"),
        (lambda path: (path.mkdir(), (path / MANIFEST).write_text("{")), "is damaged"),
        (lambda path: (path.mkdir(), (path / SPOOL).write_bytes(b"x" * 5000)), "is not a spool of Shadowgraph"),
        (lambda path: path.symlink_to(path), "cannot be reached|no such trace|is not a trace"),
    ],
)
def test_what_is_no_trace_is_refused(make: Callable[[Path], Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.sgt"
    make(path)
    for view in VIEWS:
        try:
            error = run(view, path).error
        except OSError as system:  # main() makes a sentence of it
            error = f"{system.filename}: cannot be reached"
        assert any(part in error for part in said.split("|")) and str(path) in error


@pytest.mark.parametrize("share", [0.05, 0.4, 0.9, 0.999])
def test_a_spool_that_is_cut_off_is_read_to_there(share: float, tmp_path: Path) -> None:
    recording = Recording({0: simulate_calls(1, 3000)}, functions={1: "main"})
    path = recording.write(tmp_path / "a.sgt")
    cut(path / SPOOL, share)
    outcome = run("replay", path)
    expected = recording.expected(0)
    with shadowgraph.open(path) as trace:
        read = len(trace.calls)
        assert trace.metadata["state"] == "recovered"
    assert read <= len(expected) and (share < 0.1 or read > (share - 0.1) * len(expected) * 0.9)
    assert "# recovered: the recorder did not finish" in outcome.output
    assert calls_in_replay(outcome) == read


def test_json_and_csv_say_on_stderr_what_they_have_no_place_for(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from shadowgraph.cli.main import main

    (trace / PROCESSES).unlink()
    for option in ("--json", "--csv"):
        with pytest.raises(SystemExit) as end:
            main(["report", option, str(trace)])
        assert end.value.code == 0
        printed = capsys.readouterr()
        assert printed.err == f"shadowgraph: damaged: {PROCESSES} is missing; processes have no names\n"
        assert "damaged" not in printed.out


def test_a_name_without_its_end_is_completed(tmp_path: Path) -> None:
    path = Recording({0: [Call(0, 0, 10, 1)]}).write(tmp_path / "x.sgt")
    assert run("report", tmp_path / "x").error.endswith(f"x: there is no such trace; {path} is one")
    assert run("report", tmp_path / "y").error.endswith("y: there is no such trace")


def test_the_python_interface_refuses_with_an_exception_of_ours(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such trace"):
        shadowgraph.open(tmp_path / "x.sgt")
