"""`shadowgraph count`: numbers, tables, endings and exit codes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.attach.conftest import built
from tests.support.attached import Running, Seen
from tests.support.live import SHADOWGRAPH, result, send, started, wait_for_users
from tests.support.manners import program, run, usual_environment
from tests.support.terminal import CATCHING, CTRL_C, OnTerminal

HANDLER = "int on_entry(struct sg_call *call) { return 0; }"


def test_a_command_is_counted_to_its_end_and_its_output_and_status_are_its_own() -> None:
    path = program("live_threads", "o2", "-pthread")
    ended = run([*SHADOWGRAPH, "count", "-f", "step", "-f", "work", "--", path, "50"])
    assert ended.status == 0
    assert ended.errors == ""
    assert ended.lines == ["work 50 step 100", "OK", "Calls  Function", "  100  step", "   50  work"]


def test_the_exit_status_of_a_command_is_passed_on() -> None:
    for script, status in (("exit 7", 7), ("kill -TERM $$", 128 + signal.SIGTERM)):
        ended = run([*SHADOWGRAPH, "count", "-f", "libc.so*!malloc", "--json", "--", "sh", "-c", script])
        assert ended.status == status
        assert json.loads(ended.output)["end"] == "exit"


@pytest.mark.parametrize(("program", "status"), [(["sh", "-c", "exit 7"], 7), (["yes"], 128 + signal.SIGPIPE)])
def test_the_status_is_the_same_when_nobody_reads_what_is_counted(program: list[str], status: int) -> None:
    read, write = os.pipe()
    command = [*SHADOWGRAPH, "count", "-f", "libc.so*!malloc", "--", *program]
    counting = subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, env=usual_environment())
    os.close(write)
    os.close(read)
    _, errors = counting.communicate(timeout=120)
    assert (counting.returncode, b"Traceback" in errors) == (status, False)


def test_json_has_all_that_the_table_has() -> None:
    path = program("live_threads", "o2", "-pthread")
    words = ["count", "--json", "-f", "work", "-f", "step", "-f", "main", "-f", "nothing_like_it", "--", path, "10"]
    found = result(started(*words))
    assert found.pop("seconds") > 0
    assert found == {
        "functions": [
            {"function": "step", "module": "live_threads", "calls": 20},
            {"function": "work", "module": "live_threads", "calls": 10},
            {"function": "main", "module": "live_threads", "calls": 1},
        ],
        "more": 0,
        "without_calls": 0,
        "filtered": 0,
        "end": "exit",
        "problems": ["no function matched nothing_like_it"],
    }


def test_what_is_left_out_of_the_table_is_said() -> None:
    path = program("live_threads", "o2", "-pthread")
    both = ["count", "-f", "work", "-f", "step"]
    words = [*both, "-f", "main", "-f", "re:^(_init|_fini)$", "--sort", "name", "--limit", "2"]
    ended = run([*SHADOWGRAPH, *words, "--", path, "10"])
    assert ended.lines[2:5] == ["Calls  Function", "    1  _fini", "    1  _init"]
    assert ended.lines[5:] == ["... and 3 more functions (--limit 0 shows all)"]
    ended = run([*SHADOWGRAPH, *both, "--", path, "1"])
    assert ended.lines[2:4] == ["Calls  Function", "    1  work"]
    assert ended.lines[4:] == ["1 function without a call left out (--all-functions shows all)"]
    ended = run([*SHADOWGRAPH, *both, "--all-functions", "--", path, "1"])
    assert ended.lines[2:] == ["Calls  Function", "    1  work", "    0  step"]


def test_a_process_is_counted_for_a_time_and_left_as_it_was() -> None:
    path = built("attach_busy")
    with Running([path, "2"]) as running:
        before = Seen.of(running.pid, path)
        began = time.monotonic()
        found = result(started("count", str(running.pid), "-f", "leaf", "--for", "500ms", "--json"))
        assert found["end"] == "time"
        assert 0.5 <= found["seconds"] <= time.monotonic() - began
        assert found["functions"][0]["calls"] > 1000
        after = Seen.of(running.pid, path)
        assert (after.code, after.files, after.tracer) == (before.code, before.files, "0")
        assert running.end() == ["wrong 0 worked 1"]


@pytest.mark.parametrize("words", [["count"], ["hist"], ["probe", "--code", HANDLER]], ids=lambda words: str(words[0]))
def test_when_its_time_is_over_a_command_runs_on_has_the_terminal_and_its_status_counts(words: list[str]) -> None:
    command = [*SHADOWGRAPH, *words, "-f", "libc.so*!malloc", "--for", "300ms", "--", *CATCHING]
    with OnTerminal(["bash", "-c", f"trap : INT; {shlex.join(command)}; echo status $?"]) as terminal:
        terminal.wait_for_all("began\r\n", "shadowgraph: the program runs on (process ")
        for _ in range(3):
            terminal.press(CTRL_C)
            terminal.wait_for("caught")
        assert terminal.status() == 0
        assert terminal.shown.endswith("status 7\r\n")


def test_told_to_end_it_leaves_a_command_running() -> None:
    command = started("count", "-f", "libc.so*!malloc", "--for", "100ms", "--", "sh", "-c", "read line", typing=True)
    assert command.stderr is not None
    program = int(command.stderr.readline().rpartition("process ")[2].rstrip(")\n"))
    command.terminate()
    assert command.wait(timeout=60) == 0
    assert Path(f"/proc/{program}/comm").read_text() == "sh\n"
    command.communicate()


def test_the_end_of_a_process_ends_the_counting() -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running:
        command = started("count", "--pid", str(running.pid), "-f", "leaf", "--json")
        wait_for_users(running.pid, 1)
        assert running.end() == ["wrong 0 worked 1"]
        found = result(command)
        assert found["end"] == "exit" and found["functions"][0]["calls"] > 0


def test_tables_come_at_intervals_with_the_calls_of_each_second() -> None:
    with Running([built("attach_busy"), "1"]) as running:
        command = started("count", str(running.pid), "-f", "leaf", "--interval", "200ms", "--for", "700ms", "--json")
        output, errors = command.communicate()
        assert command.returncode == 0, errors
        tables = [json.loads(line) for line in output.splitlines()]
        assert len(tables) >= 3
        calls = [table["functions"][0]["calls"] for table in tables]
        assert calls == sorted(calls) and calls[0] < calls[-1]
        ended = run([*SHADOWGRAPH, "count", str(running.pid), "-f", "leaf", "--interval", "200ms", "--for", "300ms"])
        assert [line.split()[:2] for line in ended.lines if "Calls" in line] == [["Calls", "Calls/s"]] * 2


def test_ctrl_c_prints_what_was_counted_and_leaves_the_process_alone() -> None:
    path = built("attach_busy")
    with Running([path, "1"]) as running:
        before = Seen.of(running.pid, path)
        with OnTerminal([*SHADOWGRAPH, "count", str(running.pid), "-f", "leaf"]) as terminal:
            wait_for_users(running.pid, 1)
            terminal.press(CTRL_C)
            assert terminal.status() == 0
            assert "leaf" in terminal.shown
        assert Seen.of(running.pid, path).code == before.code
        assert running.end() == ["wrong 0 worked 1"]


def test_ctrl_c_is_a_commands_own_the_first_time() -> None:
    script = "trap 'echo caught' INT; echo began; read line; read line; echo $line"
    with OnTerminal([*SHADOWGRAPH, "count", "-f", "libc.so*!malloc", "--", "sh", "-c", script]) as terminal:
        terminal.wait_for("began")
        terminal.press(CTRL_C)
        terminal.wait_for("caught")
        terminal.press(b"one\nthe end\n")
        assert terminal.status() == 0
        assert "Calls" in terminal.shown.replace("\r", "").split("the end\n")[-1]


@pytest.mark.parametrize("command", ["count", "hist", "top"])
def test_a_condition_leaves_out_what_it_is_not_for_and_says_so(command: str) -> None:
    with Running([program("live_values", "o2")]) as running:
        counting = started(command, str(running.pid), "-f", "gives_back", "--when", "arg(0) > 5")
        wait_for_users(running.pid, 1)
        send(running, [5, 6, 7])
        assert running.end("") == ["gives_back 3", "OK"]
        output, errors = counting.communicate(timeout=120)
        assert "1 call left out by --when" in errors
        assert command == "top" or " 2 " in output


def test_a_condition_with_a_mistake_is_refused_before_anything_is_touched() -> None:
    ended = run([*SHADOWGRAPH, "count", "-f", "leaf", "--when", "agr(0)", "1"])
    assert ended.errors == "shadowgraph: --when: 'agr' is not known; did you mean arg?\n    agr(0)\n    ^^^\n"
    assert ended.status == 2
