"""`shadowgraph top --json`: an object on a line for each table, and one that says how it ended."""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.attach.conftest import built
from tests.support.attached import Running
from tests.support.build import scratch_folder
from tests.support.live import SHADOWGRAPH, started, wait_for_users
from tests.support.manners import run

WORDS = ["top", "-f", "leaf", "-f", "recurse", "--json", "--interval", "200ms"]


def tables(output: str) -> list[dict[str, Any]]:
    """What was printed."""
    return [json.loads(line) for line in output.splitlines()]


def test_each_table_has_what_was_seen_until_then_and_in_the_last_interval() -> None:
    with Running([built("attach_busy"), "1"]) as running:
        ended = run([*SHADOWGRAPH, *WORDS, "--iterations", "3", "--sort", "calls", str(running.pid)])
        assert (ended.status, ended.errors) == (0, "")
        found = tables(ended.output)
        assert len(found) == 3
        for table in found:
            assert table["interval"] >= 0.2 and table["seconds"] >= table["interval"]
            assert {row["function"] for row in table["functions"]} == {"leaf", "recurse"}
            assert table["functions"][0]["calls"] >= table["functions"][1]["calls"]
            for row in table["functions"]:
                assert row["module"] == "attach_busy"
                assert 0 < row["mean_ns"] <= row["max_ns"] and row["time_per_s_ns"] > 0
            assert (table["more"], table["without_calls"]) == (0, 0)
        for first, second in pairwise(found):
            before = {row["function"]: row["calls"] for row in first["functions"]}
            for row in second["functions"]:
                more = row["calls"] - before[row["function"]]
                assert row["calls_per_s"] == pytest.approx(more / second["interval"], rel=1e-3)
        assert "end" not in found[0]
        assert {name: found[-1][name] for name in ("filtered", "end", "problems")} == {
            "filtered": 0,
            "end": "iterations",
            "problems": [],
        }
        assert running.end() == ["wrong 0 worked 1"]


def test_the_time_ends_it_with_what_came_after_the_last_table() -> None:
    with Running([built("attach_busy"), "1"]) as running:
        ended = run([*SHADOWGRAPH, *WORDS, "--for", "300ms", "--interval", "10s", str(running.pid)])
        (only,) = tables(ended.output)
        assert (ended.status, only["end"]) == (0, "time")
        assert 0.3 <= only["interval"] < 10 and only["functions"]
        assert running.end() == ["wrong 0 worked 1"]


def test_the_end_of_the_process_and_a_signal_end_it_in_order() -> None:
    with Running([built("attach_busy"), "1"]) as running:
        command = started(*WORDS, "--interval", "60s", str(running.pid))
        wait_for_users(running.pid, 1)
        command.send_signal(signal.SIGINT)
        output, errors = command.communicate(timeout=120)
        assert (command.returncode, errors, tables(output)[-1]["end"]) == (0, "", "signal")
        file = Path(scratch_folder()) / "top.json"
        command = started(*WORDS, "-o", str(file), "--interval", "60s", "--pid", str(running.pid))
        wait_for_users(running.pid, 1)
        assert running.end() == ["wrong 0 worked 1"]
        output, errors = command.communicate(timeout=120)
        assert (command.returncode, output) == (0, "") and "has ended" in errors
        assert tables(file.read_text())[-1]["end"] == "exit"
