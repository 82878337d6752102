"""Users go along into programs that a process, or a child of it, executes: each call is seen, once."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

from shadowgraph import live
from shadowgraph.errors import UsageError
from shadowgraph.live.others import detach_users, read_users
from tests.support.attached import Running
from tests.support.live import until
from tests.support.manners import program

STEP = "live_execs!step"
WAYS = {
    "once": (["3", "exec", "5"], 8),
    "many times": (["1", "exec"] * 6 + ["1"], 7),
    "from another thread": (["3", "thread", "5"], 8),
    "a child": (["3", "spawn", "10", "5"], 18),
    "children, and then the process itself": (["1", "spawn", "2", "spawn", "3", "exec", "4", "spawn", "5"], 15),
    "a forked child, while its parent waits": (["1", "fork", "2", "exec", "3", "exec", "4"], 10),
    "after what cannot be executed": (["1", "missing", "2", "text", "3", "exec", "4"], 10),
}

SOURCE = """
int on_entry(struct sg_call *call)
{
    struct { int64_t number; } record = {(int64_t)sg_arg(call, 0)};
    sg_emit(call, &record, sizeof record);
    return 0;
}
"""


def executing(*words: str) -> list[str]:
    return [program("live_execs", "o2", "-pthread"), *words]


def handlers() -> live.Ops:
    return live.Ops(["step"], source=SOURCE, entry="on_entry", events=[("number", "i8")])


@pytest.mark.parametrize(("words", "calls"), WAYS.values(), ids=WAYS)
def test_calls_are_counted_in_all_programs(words: list[str], calls: int, capfd: pytest.CaptureFixture[str]) -> None:
    with live.launch(executing(*words), follow=True) as target:
        counter = target.register(live.Counter(["step"]))
        odd = target.register(live.Counter(["step"], when="arg(0) & 1"))
        totals = target.register(live.Totals(["s*"]))
        histogram = target.register(live.Histogram(["step"], value="arg(0)"))
        ops = target.register(handlers())
        assert target.wait() == 0
    assert capfd.readouterr().out.splitlines()[-1] == "OK"
    numbers = [number for word in words if word.isdecimal() for number in range(1, int(word) + 1)]
    assert len(numbers) == calls
    assert counter.counts() == {STEP: calls}
    assert odd.counts() == {STEP: sum(number & 1 for number in numbers)}
    assert totals.totals()[STEP]["count"] == calls
    assert histogram.percentiles(STEP)["count"] == calls
    assert histogram.percentiles(STEP)["mean"] == sum(numbers) / calls
    events = [event for batch in ops.events() for event in batch]
    assert Counter(int(event["number"]) for event in events) == Counter(numbers)
    assert {ops.functions_by_number[int(event["function"])] for event in events} == {STEP}
    assert (counter.missed, ops.missed, ops.dropped, odd.filtered) == (0, 0, 0, calls - odd.counts()[STEP])
    assert target.notes == []


def test_results_may_be_read_by_other_threads_while_programs_come_and_go() -> None:
    rounds, taken = 8, list[int]()
    with live.launch(executing(*["2", "spawn", "3", "exec"] * rounds, "1"), follow=True) as target:
        counter = target.register(live.Counter(["step"]))
        histogram = target.register(live.Histogram(["step"]))
        ops = target.register(handlers())
        reader = threading.Thread(target=lambda: taken.extend(len(batch) for batch in ops.events()))
        reader.start()
        target.resume()
        last = 0
        while not target.has_ended():
            now = sum(counter.counts().values())
            assert now >= last
            last = now
            assert (counter.missed, histogram.missed, ops.dropped) == (0, 0, 0)
            assert {row["state"] for row in target.users} <= {"on", "ended"}  # it may just have ended
        reader.join()
    calls = 5 * rounds + 1
    assert counter.counts() == {STEP: calls}
    assert histogram.percentiles(STEP)["count"] == calls
    assert sum(taken) + sum(len(batch) for batch in ops.events()) == calls


def test_without_follow_the_first_program_alone_is_counted(capfd: pytest.CaptureFixture[str]) -> None:
    with live.launch(executing("3", "spawn", "10", "exec", "5")) as target:
        counter = target.register(live.Counter(["step"]))
        assert target.wait() == 0
    assert counter.counts() == {STEP: 3}


def test_a_process_that_was_attached_to_is_followed_and_can_be_read_at_any_time() -> None:
    with Running(executing("line", "3", "exec", "line", "5", "line")) as running:
        with live.attach(running.pid, follow=True) as target:
            counter = target.register(live.Counter(["step"]))
            ops = target.register(handlers())
            assert running.say("") == "ready"
            assert counter.counts() == {STEP: 3}
            assert running.say("") == "ready"
            assert counter.counts() == {STEP: 8}
            assert [row["state"] for row in target.users] == ["on", "on"]
            events = [event for batch in ops.events(wait=lambda: False) for event in batch]
            assert [int(event["number"]) for event in events] == [3, 2, 1, 5, 4, 3, 2, 1]
            assert len({str(event["function"]) for event in events}) == 2
        assert counter.counts() == {STEP: 8}
        assert read_users(running.pid).rows == []
        assert running.end("") == ["OK"]


def test_users_that_come_pause_change_or_go_do_so_in_all_programs() -> None:
    with Running(executing("line", "3", "exec", *["line", "5"] * 5, "line")) as running:
        with live.attach(running.pid, follow=True) as target:
            counter = target.register(live.Counter(["step"]))
            gone = target.register(live.Totals(["step"]))
            paused = target.register(live.Counter(["step"]))
            paused.pause()
            running.say("")
            later = target.register(live.Counter(["step"]))
            gone.unregister()
            with pytest.raises(UsageError, match="no function matches"):
                counter.replace_functions(["nothing_of_the_kind"])
            running.say("")
            paused.resume()
            counter.replace_functions(["fin*", "puts", "fgets"])
            running.say("")
            counter.replace_functions(["st*"])
            later.unregister()
            running.say("")
            assert counter.counts()[STEP] == 3 + 5 + 5
            assert later.counts() == {STEP: 10}
            assert (gone.totals()[STEP]["count"], paused.counts()) == (3, {STEP: 10})
            target.register(gone)
            running.say("")
            assert gone.totals()[STEP]["count"] == 5
        running.say("")
        assert counter.counts()[STEP] == 3 + 5 + 5 + 5
        assert running.end("") == ["OK"]


def test_a_user_without_functions_in_a_program_waits_for_a_later_one(capfd: pytest.CaptureFixture[str]) -> None:
    words = executing("2", "other", "/usr/bin/env", *executing("3"))
    with live.launch(words, follow=True) as target:
        counter = target.register(live.Counter(["step"]))
        assert target.wait() == 0
    assert counter.counts() == {STEP: 5}
    assert target.notes == ["step: no such function is in env, which was executed"]


def test_who_has_been_taken_off_does_not_go_along() -> None:
    with Running(executing("line", "3", "exec", "line", "5", "line", "exec", "7", "line")) as running:
        with live.attach(running.pid, follow=True) as target:
            counter = target.register(live.Counter(["step"], name="first"))
            other = target.register(live.Counter(["step"], name="other"))
            running.say("")
            detach_users(running.pid, "first")
            assert (counter.is_registered, other.is_registered) == (False, True)
            running.say("")
            running.say("")
            assert (counter.counts(), other.counts()) == ({STEP: 3}, {STEP: 15})
        assert running.end("") == ["OK"]


def test_functions_that_execute_may_have_been_hooked_for_somebody_who_does_not_go_along() -> None:
    with Running(executing("line", "3", "exec", "line", "5", "line")) as running:
        with live.attach(running.pid) as one, live.attach(running.pid, follow=True) as two:
            first = one.register(live.Counter(["libc.so.6!exec*"]))
            second = two.register(live.Counter(["step"]))
            running.say("")
            running.say("")
            assert second.counts() == {STEP: 8}
            assert first.counts()["libc.so.6!execv"] == 1
        assert running.end("") == ["OK"]


def test_a_program_that_cannot_be_entered_runs_on_and_that_is_said(tmp_path: Path) -> None:
    source, static = tmp_path / "ends.c", tmp_path / "ends"
    source.write_text('void _start(void) { __asm__("mov $60, %eax; mov $4, %edi; syscall"); }')
    subprocess.run(["gcc", "-static", "-nostdlib", source, "-o", static], check=True)
    with live.launch(executing("3", "other", str(static)), follow=True) as target:
        counter = target.register(live.Counter(["step"]))
        assert target.wait() == 4
    assert counter.counts() == {STEP: 3}
    assert any(note.startswith(f"not followed: {static}: is statically linked") for note in target.notes)


def test_the_end_of_a_program_that_was_executed_is_the_end_of_the_target() -> None:
    with live.launch(executing("3", "other", "/bin/sh", "-c", "kill -TERM $$"), follow=True) as target:
        counter = target.register(live.Counter(["step"]))
        assert target.wait() == 128 + signal.SIGTERM
    assert counter.counts() == {STEP: 3}


def test_who_leaves_lets_all_programs_go(capfd: pytest.CaptureFixture[str]) -> None:
    with Running(executing("line", "fork", "1", "exec", "line", "2", "exec", "line")) as running:
        target = live.attach(running.pid, follow=True)
        counter = target.register(live.Counter(["step"]))
        assert running.say("") == "ready"
        assert counter.counts() == {STEP: 1}
        target.close()
        assert running.say("") == "ready"
        assert counter.counts() == {STEP: 1}
        assert running.end("") == ["OK"]


def test_programs_that_have_ended_leave_no_files_open() -> None:
    words = [*["1", "exec"] * 3, "line", *["spawn", "1"] * 20, "line"]
    with Running(executing(*words)) as running, live.attach(running.pid, follow=True) as target:
        counter = target.register(live.Counter(["step"]))
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        assert [running.say(""), *(running.line() for _ in range(20))] == [*["OK"] * 20, "ready"]
        assert counter.counts() == {STEP: 20}
        until(lambda: len(os.listdir("/proc/self/fd")) <= before)
        assert counter.counts() == {STEP: 20}
        assert running.end("") == ["OK"]
