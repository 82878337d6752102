"""Attaching and leaving again and again, under load: right results, the code as it was, and no growth."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.attach.conftest import built
from tests.support.attached import Running, Seen, attached, recorded_calls

# A thousand in all, a tenth of a second each. SHADOWGRAPH_ATTACH_ROUNDS: as many for each of the programs instead.
ROUNDS = {"busy": 600, "malloc": 400}
WANTED = os.environ.get("SHADOWGRAPH_ATTACH_ROUNDS")


@pytest.mark.parametrize("kind", ROUNDS)
def test_a_thousand_rounds_under_load_leave_right_results_and_nothing_that_grows(kind: str) -> None:
    more, rounds = ["malloc"] if kind == "malloc" else [], int(WANTED or ROUNDS[kind])
    path = built("attach_busy")
    with Running([path, "4", *more]) as running:
        before = Seen.of(running.pid, path)
        settled, calls = None, 0
        for number in range(rounds):
            with attached(running.pid) as process:
                while not recorded_calls(process):
                    pass
                calls += recorded_calls(process)
            now = Seen.of(running.pid, path)
            assert now.code == before.code, f"round {number}"
            assert now.files == before.files
            assert now.tracer == "0"
            if number == 4:
                settled = now
        assert calls > rounds
        assert settled is not None
        assert now.size <= settled.size + 1024, "memory that is given back, or not, grows with the rounds"
        assert now.resident <= settled.resident + 4096
        assert _agents(running.pid) == 1
        assert running.end() == ["wrong 0 worked 1"]


def test_two_hundred_threads_stand_still_together_and_go_on() -> None:
    path = built("attach_busy")
    with Running([path, "200", "nap"]) as running:
        before = Seen.of(running.pid, path)
        for _ in range(2):
            with attached(running.pid) as process:
                while (process.agent.arena.threads["state"] == 1).sum() < 200:
                    pass
            assert Seen.of(running.pid, path).code == before.code
        assert running.end() == ["wrong 0 worked 1"]


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="there is no sqlite3 shell")
def test_the_sqlite3_shell_answers_as_before() -> None:
    path = shutil.which("sqlite3")
    assert path is not None
    with Running([path], ready=None) as running:
        assert running.say("select 1;") == "1"
        for number in range(3):
            with attached(running.pid) as process:
                assert running.say(f"select sum(value) from generate_series(1, {1000 + number});") != ""
                assert process.hooked > 10
            assert running.say("select 6 * 7;") == "42"
        assert running.end(".quit") == []


def test_python_answers_as_before() -> None:
    source = (
        "import sys, json\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    if line == 'end\\n': break\n"
        "    print(json.dumps(sorted({str(i): i for i in range(int(line))}))[:40], flush=True)\n"
    )
    path = os.path.realpath(shutil.which("python3", path="/usr/bin:/usr/local/bin") or "")
    if not os.path.isfile(path):
        pytest.skip("there is no python3 of the system")
    with Running([path, "-c", source]) as running:
        plain = running.say("2000")
        for _ in range(3):
            with attached(running.pid) as process:
                assert running.say("2000") == plain
                assert recorded_calls(process) > 1000
            assert running.say("2000") == plain
        assert running.end() == []


def _agents(pid: int) -> int:
    with open(f"/proc/{pid}/maps") as file:
        return sum("/agent.so" in line and " 00000000 " in line for line in file)
