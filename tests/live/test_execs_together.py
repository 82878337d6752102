"""Several controllers go along with a process that executes another program, one behind the other."""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.errors import StartError
from shadowgraph.ops.handover import hand_over, not_entered
from tests.live.test_execs import STEP, WAYS, executing, handlers
from tests.live.test_recorder_execs import calls_by_process
from tests.live.test_two_recorders import calls_in, record
from tests.support.attached import Running
from tests.support.live import until
from tests.support.manners import program


@pytest.mark.parametrize(("words", "calls"), WAYS.values(), ids=WAYS)
def test_controllers_see_the_same_calls_in_all_programs(words: list[str], calls: int, tmp_path: Path) -> None:
    with Running(executing("line", *words)) as running:
        with (
            live.attach(running.pid, follow=True) as one,
            live.attach(running.pid, follow=True) as two,
            live.attach(running.pid, follow=True) as three,
        ):
            first = one.register(live.Counter(["step"]))
            second = two.register(live.Counter(["main", "step"]))
            ops = two.register(handlers())
            recorder = two.register(live.Recorder(tmp_path / "two.sgt", ["main", "step"]))
            last = three.register(live.Recorder(tmp_path / "three.sgt", ["step"]))
            assert running.end("")[-1] == "OK"
            assert [target.wait(60) for target in (one, two, three)] == [0, 0, 0]
            recorder.unregister()
            last.unregister()
        assert (first.counts(), second.counts()[STEP]) == ({STEP: calls}, calls)
        assert second.counts()["live_execs!main"] == executions(words)
        assert sum(len(batch) for batch in ops.events()) == calls
        assert [target.notes for target in (one, two, three)] == [[], [], []]
    for name in ("two", "three"):
        assert sum(row["step"] for row in calls_by_process(tmp_path / f"{name}.sgt")) == calls


def executions(words: list[str]) -> int:
    """How often the program is executed by what these words say."""
    return sum(words.count(word) for word in ("exec", "thread", "spawn"))


def test_two_record_commands_have_what_is_executed(tmp_path: Path) -> None:
    folders = [tmp_path / "0.sgt", tmp_path / "1.sgt"]
    with Running([program("attach_processes")]) as running:
        commands = [record(running.pid, folder, "-f", "middle", "-f", "works") for folder in folders]
        assert running.say("exec") == "executed 9"
        assert running.end() == ["wrong 0 ticked 0"]
        for command in commands:
            errors = command.communicate(timeout=60)[1]
            assert command.returncode == 0, errors
            assert "not followed" not in errors and "has executed" not in errors
    assert [calls_in(folder) for folder in folders] == [{"works": 1, "middle": 1000}] * 2


def test_a_recording_and_users_from_python_go_along_together(tmp_path: Path) -> None:
    with Running(executing("line", "3", "exec", "line", "5", "spawn", "7", "line")) as running:
        with live.attach(running.pid, follow=True) as target:
            counter = target.register(live.Counter(["step"]))
            recording = record(running.pid, tmp_path / "run.sgt", "-f", "step")
            assert running.say("") == "ready"
            assert [running.say(""), running.line()] == ["OK", "ready"]
            assert counter.counts() == {STEP: 15}
        assert running.end("") == ["OK"]
        errors = recording.communicate(timeout=60)[1]
        assert recording.returncode == 0, errors
    assert (target.notes, calls_in(tmp_path / "run.sgt")) == ([], {"step": 15})


def test_who_finds_nothing_in_a_program_waits_for_a_later_one() -> None:
    words = executing("line", "2", "other", "/usr/bin/env", *executing("3"))
    with Running(words) as running:
        with live.attach(running.pid, follow=True) as one, live.attach(running.pid, follow=True) as two:
            first = one.register(live.Counter(["main"]))
            second = two.register(live.Counter(["step"]))
            assert running.end("")[-1] == "OK"
            assert two.wait(60) == 0
        assert (first.counts()["live_execs!main"], second.counts()) == (1, {STEP: 5})
        assert two.notes == ["step: no such function is in env, which was executed"]


def test_a_program_that_cannot_be_entered_is_entered_by_nobody_and_all_say_so(tmp_path: Path) -> None:
    source, static = tmp_path / "ends.c", tmp_path / "ends"
    source.write_text('void _start(void) { __asm__("mov $60, %eax; mov $4, %edi; syscall"); }')
    subprocess.run(["gcc", "-static", "-nostdlib", source, "-o", static], check=True)
    with Running(executing("line", "3", "other", str(static))) as running:
        with live.attach(running.pid, follow=True) as one, live.attach(running.pid, follow=True) as two:
            counters = [target.register(live.Counter(["step"])) for target in (one, two)]
            running.end("", status=4)
            assert [target.wait(60) for target in (one, two)] == [0, 0]
            until(lambda: bool(two.notes))
        assert [counter.counts() for counter in counters] == [{STEP: 3}, {STEP: 3}]
        assert one.notes[0].startswith(f"not followed: {static}: is statically linked")
        assert two.notes == [not_entered(running.pid)]


@pytest.mark.parametrize("count", [2, 3])
def test_where_the_first_one_fails_the_others_enter_the_program_before_it_begins(count: int) -> None:
    def fail(*_: object) -> Any:
        raise StartError("something is wrong")

    with Running(executing("line", "3", "exec", "5", "spawn", "7", "line")) as running, ExitStack() as stack:
        targets = [stack.enter_context(live.attach(running.pid, follow=True)) for _ in range(count)]
        counters = [target.register(live.Counter(["step"])) for target in targets]
        targets[0]._execs._enter = fail
        assert [running.say(""), running.line()] == ["OK", "ready"]
        assert [counter.counts() for counter in counters[1:]] == [{STEP: 15}] * (count - 1)
        assert [target.notes for target in targets[1:]] == [[]] * (count - 1)
        assert "something is wrong" in targets[0].notes[0]
        assert running.end("") == ["OK"]


@pytest.mark.parametrize("when", ["before", "behind"])
def test_who_leaves_while_the_first_one_is_about_to_hand_over_keeps_nobody_waiting(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hand_over_slowly(*arguments: Any) -> None:
        if when == "behind":
            hand_over(*arguments)
        reached.set()
        assert go_on.wait(60)
        if when == "before":
            hand_over(*arguments)

    monkeypatch.setattr("shadowgraph.live.execs.hand_over", hand_over_slowly)
    with Running(executing("line", "3", "exec", "5", "line")) as running:
        with live.attach(running.pid, follow=True) as one:
            first = one.register(live.Counter(["step"]))
            two = live.attach(running.pid, follow=True)
            second = two.register(live.Counter(["step"]))
            assert running.process.stdin is not None
            running.process.stdin.write("\n")
            assert reached.wait(60)
            two.close()
            go_on.set()
            assert running.line() == "ready"
            assert first.counts() == {STEP: 8}
        assert second.counts() == {STEP: 3}
        assert len(two.notes) == 1 and "has executed another program" in two.notes[0]
        assert running.end("") == ["OK"]


def test_who_comes_when_a_child_has_executed_already_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newcomer follows execs in what the child has left, but has not been asked about this one."""
    reached, go_on, expected = threading.Event(), threading.Event(), list[int]()

    def hand_over_slowly(pid: int, former: Any, agent: Any, asked: Any) -> None:
        reached.set()
        assert go_on.wait(60)
        hand_over(pid, former, agent, asked)
        kinds = agent.arena.registry["users"]["kind"]
        expected.append(int((kinds == layout.USER_EXPECTED).sum()))

    with (
        Running(executing("line", "3", "spawn", "5", "line")) as running,
        live.attach(running.pid, follow=True) as one,
        live.attach(running.pid, follow=True) as two,
    ):
        monkeypatch.setattr("shadowgraph.live.execs.hand_over", hand_over_slowly)
        first = one.register(live.Counter(["step"]))
        assert running.process.stdin is not None
        running.process.stdin.write("\n")
        assert reached.wait(60)
        second = two.register(live.Counter(["step"]))
        go_on.set()
        until(lambda: bool(expected))
        assert expected == [0]
        running.end("")
        assert first.counts() == {STEP: 8}
        assert second.counts()[STEP] <= 3
        assert (first.missed, second.missed) == (0, 0)


def test_a_controller_that_does_nothing_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with Running(executing("line", "3", "exec", "5", "line")) as running:
        with live.attach(running.pid, follow=True) as one, live.attach(running.pid, follow=True) as two:
            first = one.register(live.Counter(["step"]))
            second = two.register(live.Counter(["step"]))
            monkeypatch.setattr(two._execs._pending.later, "come", lambda: iter(()))
            began = time.monotonic()
            assert running.say("") == "ready"
            assert 2 < time.monotonic() - began < 30
            assert (first.counts(), second.counts()) == ({STEP: 8}, {STEP: 3})
        assert running.end("") == ["OK"]
