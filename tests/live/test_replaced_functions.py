"""user.replace_functions() while threads call: each call belongs to the former functions or to the new ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import shadowgraph
from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.errors import StartError, UsageError
from shadowgraph.live.others import detach_users
from shadowgraph.live.user import Numbers, Place
from tests.live.test_counts import told
from tests.support.attached import Running, Seen
from tests.support.live import send, until
from tests.support.manners import program, usual_environment

THREADS = 8
TIMES = 60
Counts = dict[str, int]
Of = Callable[[live.User], Counts]


def counts_of(user: live.User) -> Counts:
    """What a user has counted, by plain names."""
    if isinstance(user, live.Counter):
        found: dict[str, int] = user.counts()
    elif isinstance(user, live.Totals):
        found = {label: int(row["count"]) for label, row in user.totals().items()}
    else:
        assert isinstance(user, live.Histogram)
        found = {label: int(row["count"]) for label, row in user.all_percentiles().items()}
    return {label.partition("!")[2]: count for label, count in found.items()}


def hold(counts: Counts, own: Counts, exchanges: int) -> None:
    """Of a function in both filters each call; of two that are called and exchanged in turns every second one.

    A thread that meets an exchange between the two may have one call more or less counted for it.
    """
    assert counts["common"] == own["common"]
    assert abs(counts["one"] + counts["other"] - own["one"]) <= THREADS * (exchanges + 1)
    assert 0 < counts["one"] < own["one"]
    assert 0 < counts["other"] < own["other"]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(live.Counter, id="counter"),
        pytest.param(lambda functions: live.Counter(functions, when="arg(0) != 123456789012"), id="conditional"),
        pytest.param(live.Totals, id="totals"),
        pytest.param(lambda functions: live.Histogram(functions, value="result"), id="histogram"),
    ],
)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another counter"])
def test_each_call_is_counted_by_the_former_functions_or_by_the_new_ones(
    make: Callable[[list[str]], live.User], beside: bool
) -> None:
    path = program("live_replaced", "o2", "-pthread")
    with Running([path, str(THREADS)]) as running:
        before = Seen.of(running.pid, path)
        with live.attach(running.pid) as target:
            all_of_them = target.register(live.Counter(["common", "one", "other"])) if beside else None
            user = target.register(make(["common", "one"]))
            times = 15 if beside and isinstance(user, live.Counter) else TIMES  # all threads stand still at each
            assert running.say("go") == "going"
            for time in range(times):
                user.replace_functions(["common", "one" if time % 2 else "other"])
                counts = counts_of(user)
                assert counts.keys() == {"common", "one", "other"}
            printed = running.say("stop")
            assert user.missed == 0
            hold(counts_of(user), told(printed), times)
            if all_of_them is not None:
                assert counts_of(all_of_them) == told(printed)
            user.unregister()
            hold(counts_of(user), told(printed), times)
        after = Seen.of(running.pid, path)
        assert (after.code, after.files, after.tracer) == (before.code, before.files, "0")
        assert running.end("") == ["OK"]


def test_handlers_go_over_with_their_data_and_their_events() -> None:
    source = """
    #include <shadowgraph/ops.h>
    int on_entry(struct sg_call *call) { *(int64_t *)call->data = (int64_t)sg_arg(call, 0); return 1; }
    void on_exit(struct sg_call *call)
    {
        int64_t number = *(int64_t *)call->data;
        struct { int64_t number, more; } event = {number, (int64_t)call->result - number};
        if (number >= 0 && number < 1000)
            sg_emit(call, &event, sizeof event);
    }
    """
    described = [("number", "i8"), ("more", "i8")]
    with Running([program("live_replaced", "o2", "-pthread"), "1"]) as running, live.attach(running.pid) as target:
        user = live.Ops(["main"], source=source, entry="on_entry", exit="on_exit", data_size=8, events=described)
        target.register(user)
        user.replace_functions(["one", "other"])
        witness = target.register(live.Counter(["other"]))
        assert running.say("go") == "going"
        until(lambda: counts_of(witness)["other"] > 1000)
        running.say("stop")
        events = np.concatenate(list(user.events(wait=lambda: False)))
        names = [user.functions_by_number[number].partition("!")[2] for number in events["function"].tolist()]
        assert names == ["one", "other"] * 1000
        assert events["number"].tolist() == [number for number in range(1000) for _ in range(2)]
        assert events["more"].tolist() == [2, 3] * 1000
        assert running.end("") == ["OK"]


def test_a_recorder_goes_over_to_functions_that_its_trace_has_not_heard_of(tmp_path: Path) -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["gives_back"]))
        recorder = target.register(live.Recorder(tmp_path / "run.sgt", ["gives_back"]))
        send(running, range(10))
        until(lambda: sum(counter.counts().values()) == 10)
        recorder.replace_functions(["libc.so*!putchar"])
        send(running, range(7))
        until(lambda: sum(counter.counts().values()) == 17)
        recorder.replace_functions(["gives_back", "libc.so*!*scanf"])
        send(running, range(5))
        until(lambda: sum(counter.counts().values()) == 22)
        recorder.unregister()
    trace = shadowgraph.open(tmp_path / "run.sgt")
    names = {row["function"]: row["name"] for row in trace.functions.to_pylist()}
    called = [names[number] for batch in trace.batches() for number in batch["function"].to_pylist()]
    assert called.count("gives_back") == 15
    assert len(set(names.values())) == len(names), "each has one row"
    assert {name for name in called if name.endswith("scanf")}


def test_a_paused_user_goes_over_and_goes_on_when_it_is_resumed() -> None:
    with Running([program("live_replaced", "o2", "-pthread"), "2"]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["one"]))
        witness = target.register(live.Counter(["one", "other"]))
        assert running.say("go") == "going"
        until(lambda: min(counts_of(witness).values()) > 1000)
        counter.pause()
        paused = counts_of(counter)
        counter.replace_functions(["other"])
        counter.replace_functions(["one", "other"])
        seen = counts_of(witness)
        until(lambda: all(now > seen[name] + 1000 for name, now in counts_of(witness).items()))
        assert counts_of(counter) == {**paused, "other": 0}
        counter.resume()
        until(lambda: counts_of(counter)["other"] > 1000 and counts_of(counter)["one"] > paused["one"] + 1000)
        printed = running.say("stop")
        assert counts_of(counter)["one"] < told(printed)["one"] - 1000
        assert running.end("") == ["OK"]


def test_patterns_that_name_nothing_change_nothing_and_say_what_is_there() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["gives_back"]))
        before = target.users
        with pytest.raises(UsageError, match="no function matches give_back; the nearest names are gives_back"):
            counter.replace_functions(["give_back"])
        with pytest.raises(UsageError, match="a list of patterns is needed"):
            counter.replace_functions([])
        with pytest.raises(UsageError, match="a list of patterns is needed"):
            counter.replace_functions("gives_back")  # type: ignore[arg-type]
        assert target.users == before and counter.functions == ("gives_back",)
        send(running, range(5))
        until(lambda: sum(counter.counts().values()) == 5)
        counter.replace_functions(["main"])
        assert target.users[0]["filter"] == "main" and counter.functions == ("main",)
        assert running.end("") == ["gives_back 5", "OK"]


def test_who_is_not_registered_or_has_been_taken_off_cannot_go_over() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = live.Counter(["gives_back"])
        with pytest.raises(UsageError, match="is not registered"):
            counter.replace_functions(["main"])
        target.register(counter)
        detach_users(running.pid, "counter")
        with pytest.raises(UsageError, match="has been taken off by somebody else"):
            counter.replace_functions(["main"])


def test_counts_stay_readable_when_the_process_dies_before_an_exchange() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["gives_back"]))
        send(running, range(9))
        until(lambda: sum(counter.counts().values()) == 9)
        running.process.kill()
        running.process.wait()
        with pytest.raises(StartError, match="ended"):
            counter.replace_functions(["main"])
        assert counter.counts() == {"live_values!gives_back": 9}


def test_who_has_gone_over_and_is_taken_off_by_somebody_else_keeps_what_it_counted() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["gives_back"]))
        send(running, range(9))
        until(lambda: sum(counter.counts().values()) == 9)
        counter.replace_functions(["*"])  # more than there was room for
        send(running, range(4))
        until(lambda: counts_of(counter)["gives_back"] == 13)
        with live.attach(running.pid) as second:
            other = second.register(live.Counter(["gives_back"]))
            detach_users(running.pid, str(counter.place.slot))
            send(running, range(3))
            until(lambda: sum(other.counts().values()) == 3)
        assert counts_of(counter)["gives_back"] == 13


def test_going_over_again_and_again_takes_no_more_room() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        totals = target.register(live.Totals(["libc.so*!str*"]))
        arena = totals.place.registry.arena
        sets = [[f"libc.so*!{first}*"] for first in "abcdefghilmnoprstuvw"]

        def round_about() -> tuple[int, int, int]:
            for patterns in sets:
                totals.replace_functions(patterns)
            row = totals.place.registry.user(totals.place.slot)
            held = sum(size for _, size in totals.place.cells._held("pool_at", "pool_size"))
            return int(row["parts"]), int(arena.registry["next_cell"]), held

        after_one = round_about()
        assert [round_about() for _ in range(5)] == [after_one] * 5
        assert after_one[2] < 200_000, "former tables are given back"
        totals.replace_functions(["gives_back"])
        send(running, range(100))
        until(lambda: totals.totals()["live_values!gives_back"]["count"] == 100)
        assert running.end("") == ["gives_back 100", "OK"]


_FLIPPING = """
import sys
from shadowgraph import live
with live.attach(int(sys.argv[1])) as target:
    counter = target.register(live.Counter(["common", sys.argv[2]]))
    print("on", flush=True)
    sys.stdin.readline()
    for time in range(30):
        counter.replace_functions(["common", ("one", "other")[time % 2]])
    print("flipped", flush=True)
    sys.stdin.readline()
    print(counter.counts()["live_replaced!common"], flush=True)
"""


def test_two_controllers_exchange_at_once() -> None:
    with Running([program("live_replaced", "o2", "-pthread"), str(THREADS)]) as running:
        controllers = [
            subprocess.Popen(
                [sys.executable, "-c", _FLIPPING, str(running.pid), first],
                env=usual_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for first in ("one", "other")
        ]
        answers: list[list[str]] = [[] for _ in controllers]

        def all_say(word: str) -> None:
            for controller, said in zip(controllers, answers, strict=True):
                assert controller.stdout is not None
                said.append(controller.stdout.readline().strip())
                assert said[-1] == word or not word

        def tell_all() -> None:
            for controller in controllers:
                assert controller.stdin is not None
                controller.stdin.write("\n")

        all_say("on")
        assert running.say("go") == "going"
        tell_all()
        all_say("flipped")
        own = told(running.say("stop"))
        tell_all()
        all_say("")
        assert [said[-1] for said in answers] == [str(own["common"])] * 2
        for controller in controllers:
            controller.communicate()
            assert controller.returncode == 0
        assert running.end("") == ["OK"]


def _exchange_and_die(place: Place, former: Numbers, new: Numbers, line: int) -> bool:
    """Another controller registers and exchanges functions, killed at a line of that; False if it has fewer lines."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    arena = Arena(os.open(f"/proc/self/fd/{place.registry.arena.file}", os.O_RDWR))  # with a lock of its own
    registry = Registry(arena, place.registry.zones)

    def at_line(frame: FrameType, event: str, argument: object) -> Callable[..., object] | None:
        nonlocal line
        line -= frame.f_code is Registry.replace_functions.__code__ and event == "line"
        if line == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return at_line

    with registry.locked():
        row = UserRow(layout.USER_COUNTER, "dies", at_entry=True, shares_counter=True)
        slot = registry.add(row, former, former)
        sys.settrace(at_line)
        registry.replace_functions(slot, new, new, "new")
        sys.settrace(None)
    os._exit(0)


def test_a_controller_killed_in_the_middle_of_an_exchange_leaves_nothing_behind() -> None:
    """At every line of it: the next controller takes off what there is, on both sides of the masks."""
    with Running([program("live_replaced", "o2", "-pthread"), "2"]) as running, live.attach(running.pid) as target:
        hooked = target.register(live.Counter(["one", "other"]))
        number = {label.partition("!")[2]: one for one, label in hooked.place.labels.items()}
        hooked.unregister()
        witness = target.register(live.Counter(["common"]))
        common = witness.place.numbers[0]
        registry, mine = witness.place.registry, np.uint64(1 << witness.place.slot)
        assert running.say("go") == "going"
        line = 1
        former, new = (np.array(sorted([common, number[name]])) for name in ("one", "other"))
        while _exchange_and_die(witness.place, former, new, line):
            with registry.locked():
                assert registry.slots() == [witness.place.slot]
            masks = registry.arena.functions["users"]
            assert not (masks & ~mine).any() and (masks[:, 0] == masks[:, 1]).all()
            assert not registry.arena.functions["callers"].any()
            line += 1
        assert line > 15
        own = told(running.say("stop"))
        assert counts_of(witness)["common"] == own["common"]
        assert running.end("") == ["OK"]


def test_a_process_exchanges_functions_on_itself() -> None:
    script = """
import sqlite3
import shadowgraph as sg
database = sqlite3.connect(":memory:")
with sg.attach_self() as target:
    steps = target.register(sg.Counter(["libsqlite3.so*!sqlite3_step"]))
    both = target.register(sg.Counter(["libsqlite3.so*!sqlite3_step", "libsqlite3.so*!sqlite3_reset"]))
    totals = target.register(sg.Totals(["libsqlite3.so*!sqlite3_step"]))
    database.execute("values (1), (2), (3)").fetchall()
    for user in (steps, totals):
        user.replace_functions(["libsqlite3.so*!sqlite3_column_count"])
    database.execute("values (1), (2), (3)").fetchall()
    for user in (steps, totals):
        user.replace_functions(["libsqlite3.so*!sqlite3_step", "libsqlite3.so*!sqlite3_column_count"])
    database.execute("values (1), (2)").fetchall()
    name = next(label for label in both.counts() if label.endswith("!sqlite3_step"))
    print(steps.counts()[name], totals.totals()[name]["count"], both.counts()[name])
    print(steps.counts() == {label: row["count"] for label, row in totals.totals().items()})
"""
    done = subprocess.run([sys.executable, "-c", script], env=usual_environment(), capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("7 7 11\nTrue\n", "")
