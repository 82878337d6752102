"""The benchmarks count right, say what they promise, and show a broken promise as one."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))

import _lines  # noqa: E402
import coverage  # noqa: E402
import layouts  # noqa: E402
import path_parts  # noqa: E402
import predicate_cost  # noqa: E402
import users_cost  # noqa: E402
from _calls import Figures, Load, record, run  # noqa: E402
from _coverage_lines import coverage_line  # noqa: E402
from _programs import build_calls, build_parts, build_served  # noqa: E402
from _served import Recording, Served  # noqa: E402
from _table import Table  # noqa: E402

SHAPES = (
    "leaf",
    "recursion",
    "chain",
    "turns",
    "forward",
    "tail",
    "library",
    "library_inside",
    "in_loop",
    "in_outer_loop",
)


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    return line


def shown(line: dict[str, Any]) -> str:
    stream = io.StringIO()
    Table(stream).row(line)
    return stream.getvalue()


@pytest.fixture(scope="module")
def calls() -> Path:
    return build_calls()


def test_every_shape_has_figures_for_its_twins(calls: Path) -> None:
    figures = Figures()
    run([str(calls), *Load(SHAPES, rounds=2, calls=2000).arguments], figures)
    assert {shape for shape, _ in figures.threads} == set(SHAPES)
    for shape in ("leaf", "recursion", "chain"):
        assert {twin for name, twin in figures.threads if name == shape} == {"plain", "floor", "traced"}
    assert all(len(rounds) == 2 for threads in figures.threads.values() for rounds in threads)


def test_a_recorded_run_accounts_for_every_call_the_program_says_it_made(calls: Path, tmp_path: Path) -> None:
    recorded = record(calls, Load(SHAPES, rounds=2, calls=4000, threads=2), Figures(), tmp_path / "trace.sgt")
    assert recorded.made > 2 * 2 * 4000 * len(SHAPES) * 0.8
    assert recorded.manifest["calls"] == recorded.accounted == recorded.made


def test_calls_that_are_cut_are_accounted_for(calls: Path, tmp_path: Path) -> None:
    load = Load(("in_loop", "in_outer_loop"), rounds=2, calls=1000)
    recorded = record(calls, load, Figures(), tmp_path / "trace.sgt", "--depth", "2")
    assert recorded.manifest["filtered"] >= 2 * 1000
    assert recorded.accounted == recorded.made


def test_figures_of_several_runs_and_threads_are_held_apart() -> None:
    figures = Figures()
    for best in (3.0, 2.0):
        figures.add(json.dumps({"shape": "leaf", "twin": "traced", "ns": [[best, 9.0], [best + 1, 8.0]]}))
    figures.add('{"made": 7}\nnot of the program\n')
    assert figures.best("leaf", "traced") == 3.0  # the thread where the best round is worst
    assert figures.middle("leaf", "traced") == 6.0
    assert figures.made == 7


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({"target": {"ratio": 1.25}}, True),
        ({"target": {"ratio": 1.1}}, False),
        ({"at_least": {"ratio": 1.2}}, True),
        ({"at_least": {"ratio": 1.21}}, False),
        ({"target": {"ratio": 1.25}, "at_least": {"ns": 25.0}}, False),
    ],
)
def test_a_line_says_whether_its_promises_are_kept(
    capsys: pytest.CaptureFixture[str], limits: dict[str, Any], kept: bool
) -> None:
    _lines.say("leaf", {"ns": 24.0, "ratio": 1.2, "to": "floor"}, **limits)
    assert said(capsys)["kept"] is kept


def test_a_line_without_a_promise_makes_none(capsys: pytest.CaptureFixture[str]) -> None:
    _lines.say("leaf", {"ns": 24.123456})
    assert said(capsys) == {"what": "leaf", "ns": 24.12}


def test_the_table_marks_what_is_kept_and_what_is_not() -> None:
    line = {"what": "leaf", "ratio": 1.2, "to": "floor", "ns": 24.0, "target": {"ratio": 1.25}, "kept": True}
    assert shown(line).startswith("✓ leaf")
    assert "1.20 (≤ 1.25)" in shown(line) and "24 ns" in shown(line)
    assert shown(line | {"kept": False}).startswith("✗ leaf")
    assert shown({"what": "peer", "missing": "it is not installed"}).endswith("not measured: it is not installed\n")


def test_coverage_is_held_against_its_promises() -> None:
    line = {"program": "/usr/bin/node", "functions": 40_000, "percent": 94.0, "hookable_of_traceable": 99.95}
    line["untraceable"] = {"MANAGED_STACK": 2382, "NO_CALLER": 1}
    good = coverage_line(line | {"seconds": {"plan": 1.0, "encode": 0.5}})
    assert good["kept"] and good["planning_80000_s"] == 3.0
    assert not coverage_line(line | {"seconds": {"plan": 2.0, "encode": 0.5}})["kept"]
    bad = line | {"hookable_of_traceable": 99.8, "seconds": {"plan": 1.0, "encode": 0.5}}
    assert not coverage_line(bad)["kept"]
    assert good["not_traceable"] == "MANAGED_STACK 2,382 NO_CALLER 1", "what is left out of the promise is shown"


def test_coverage_is_measured_of_what_the_goals_name() -> None:
    named = {"bash", "perl", "python3", "node", "sqlite3's library", "gcc's cc1"}
    assert named <= set(coverage.programs())
    assert any(path.name == "cc1" for path in coverage.programs()["gcc's cc1"])
    assert coverage_line({"what": "node", "missing": "it is not installed"})["missing"]


def test_an_unknown_benchmark_is_one_sentence() -> None:
    done = subprocess.run([sys.executable, str(BENCH), "no_such"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no benchmark no_such; there are call_cost" in done.stderr


def test_predicates_are_timed_where_they_hold(capsys: pytest.CaptureFixture[str]) -> None:
    predicate_cost.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["what"] for line in lines] == [text for text, _, _ in predicate_cost.PREDICATES]
    assert all(line["evaluation_ns"] > 0 for line in lines)


def test_users_of_each_kind_are_measured_in_one_program_that_runs_on() -> None:
    with Served(build_served()) as served, users_cost.live.attach(served.pid) as target:
        bench = users_cost.Bench(served, target, rounds=1, calls=500)
        for kind in users_cost.KINDS:
            costs = users_cost.measure_kind(bench, kind)
            assert tuple(costs) == users_cost.NUMBERS
            assert all(cost.traced > 0 and cost.plain > 0 and cost.floor > 0 for cost in costs.values())
        assert target.users == [], "the next kind is alone"


def test_a_recording_beside_users_is_on_while_it_is_measured(tmp_path: Path) -> None:
    with Served(build_served()) as served, users_cost.live.attach(served.pid) as target:
        counter = target.register(users_cost.counter())
        with Recording(served.pid, target, tmp_path):
            served.ask(1, 500)
        manifest = json.loads((tmp_path / "trace.sgt" / "manifest.json").read_text())
        assert manifest["calls"] == sum(counter.counts().values()) == 500


def test_a_program_says_how_long_it_was_held_up_while_its_functions_were_hooked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    users_cost.say_many(500, 2)
    lines = {line["what"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    new = lines.pop("registering a user on 500 new functions")
    assert 0 <= new["longest_stop_ms"] <= new["stopped_ms"] <= 1000 * new["seconds"]
    assert all(0 < line["least_ms"] <= line["median_ms"] for line in lines.values())
    assert "kept" in lines["registering 1 handlers on 500 hooked functions, by a glob"]


@pytest.mark.parametrize("name", path_parts.PARTS)
def test_a_path_with_some_of_its_parts_calls_and_returns(name: str) -> None:
    options = argparse.Namespace(runs=1, rounds=1, calls=20_000)  # more than fit the buffer
    best = path_parts.measure(build_parts(name, *path_parts.PARTS[name][1]), options)
    assert all(best[f"{shape}{end}"] > 0 for shape in path_parts.SHAPES for end in ("", "_floor"))


def test_the_layouts_of_frames_call_the_same_users_and_differ_when_one_goes() -> None:
    rows = layouts.measure(rounds=1, calls=500)  # it has checked the order of entries and exits itself
    gone = {row["layout"]: row["exits_to_successor"] for row in rows if "words" not in row}
    assert gone == {"chain": 1, "list": 0, "mask": 0}
    words = {(row["layout"], row["users"]): row["words"] for row in rows if "words" in row}
    assert {number: words["mask", number] for number in (1, 16)} == {1: 5, 16: 5}
    assert {number: words["list", number] for number in (1, 16)} == {1: 5, 16: 20}
    assert {number: words["chain", number] for number in (1, 16)} == {1: 2, 16: 32}
    assert all(row["ns"] > 0 for row in rows if "words" in row)
