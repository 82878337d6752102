"""Where a trace is put: nothing that is there is lost, and nothing is left behind where there is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from shadowgraph.errors import EXIT_USAGE
from tests.support.manners import Ended, program, recorder, run

AS_USER = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


def record(folder: Path, *options: str, command: str = "") -> Ended:
    start = [argument for argument in recorder(*options) if argument not in ("-q",)]
    at = start.index("-o")
    del start[at : at + 2]
    return run([*start, command or program("manners_state")], folder=folder)


def test_the_folder_is_named_after_the_program_and_the_summary_names_it(tmp_path: Path) -> None:
    ended = record(tmp_path)
    assert ended.status == 0 and (tmp_path / "manners_state.sgt" / "manifest.json").is_file()
    lines = ended.errors.splitlines()
    assert 2 <= len(lines) <= 3 and all(line.startswith("shadowgraph: ") for line in lines)
    assert lines[-1] == "shadowgraph: trace in manners_state.sgt (shadowgraph report manners_state.sgt)"
    assert run([*recorder()[:3], "report"], folder=tmp_path).status == 0  # the newest one in this folder


def test_a_trace_that_exists_is_kept_unless_forced(tmp_path: Path) -> None:
    assert record(tmp_path).status == 0
    before = (tmp_path / "manners_state.sgt" / "calls.parquet").read_bytes()
    ended = record(tmp_path)
    assert (ended.status, ended.output) == (EXIT_USAGE, "")
    assert ended.sentence == (
        "manners_state.sgt: the trace folder exists; replace it with --force or choose another name with -o"
    )
    assert (tmp_path / "manners_state.sgt" / "calls.parquet").read_bytes() == before
    assert record(tmp_path, "--force").status == 0
    assert (tmp_path / "manners_state.sgt" / "calls.parquet").read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == ["manners_state.sgt"]


@pytest.mark.parametrize("options", [["-f", "no_such_function"], ["--buffer", "1K"]])
def test_a_forced_recording_that_cannot_begin_leaves_the_old_trace(options: list[str], tmp_path: Path) -> None:
    assert record(tmp_path).status == 0
    before = (tmp_path / "manners_state.sgt" / "calls.parquet").read_bytes()
    assert record(tmp_path, "--force", *options).status in (2, 125)
    assert (tmp_path / "manners_state.sgt" / "calls.parquet").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["manners_state.sgt"]


def test_force_replaces_traces_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    ended = record(tmp_path, "--force", "-o", "precious")
    assert ended.status == EXIT_USAGE and ended.sentence.startswith("precious: is a folder, but not a trace")
    (precious / "manifest.json").write_text("{}")
    ended = record(tmp_path, "--force", "-o", "precious")
    assert ended.status == EXIT_USAGE and "thesis.txt" in ended.sentence
    assert (precious / "thesis.txt").read_text() == "years of work"
    ended = record(tmp_path, "--force", "-o", "precious/thesis.txt")
    assert ended.status == EXIT_USAGE and "is not a trace folder" in ended.sentence


def test_places_that_cannot_be_written_to_are_named_with_the_reason(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    shutil.copy(program("manners_state"), tmp_path / "p")
    closed.chmod(0o555)
    for output, said in (
        ("closed/t.sgt", "permission denied"),
        ("p/t.sgt", "not a directory"),
        ("nowhere/at/all/t.sgt", "there is no folder nowhere/at/all; choose another place with -o"),
        ("x" * 300, "name too long"),
        ("/proc/t.sgt", ""),
    ):
        for force in ([], ["--force"]):
            ended = run([*AS_USER, *recorder(*force, trace=Path(output)), "./p"], folder=tmp_path)
            assert (ended.status, ended.output) == (EXIT_USAGE, ""), ended
            assert ended.sentence.startswith(f"{output}: ") and said in ended.sentence
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed", "p"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_places_that_may_not_be_entered_are_named_in_one_sentence(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir(0o700)
    os.chown(foreign, 65534, 65534)
    shadowgraph = recorder()[:3]
    commands = [
        [*recorder(trace=foreign / "t.sgt"), "true"],
        [*recorder("--force", trace=foreign / "t.sgt"), "true"],
        *([*shadowgraph, view, str(foreign / "t.sgt")] for view in ("report", "replay", "graph")),
    ]
    for command in commands:
        ended = run([*AS_USER, *command])
        assert ended.status == EXIT_USAGE and ended.output == ""
        assert ended.sentence.startswith(str(foreign)) and "permission denied" in ended.sentence
