"""Counters count each call once, against programs that count for themselves."""

from __future__ import annotations

import re
import time

import pytest

from shadowgraph import live
from tests.attach.conftest import built
from tests.support.attached import Running, Seen
from tests.support.live import send, until
from tests.support.manners import program


def counted(command: list[str], functions: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[dict[str, int], str]:
    """What a counter has seen of a program from start to end, by plain names, and what the program printed."""
    with live.launch(command) as target:
        counter = target.register(live.Counter(functions))
        assert target.wait() == 0
        assert counter.missed == 0
        counts = counter.counts()
    assert counter.counts() == counts, "they stay readable"
    return {label.partition("!")[2]: count for label, count in counts.items()}, capfd.readouterr().out


def told(output: str) -> dict[str, int]:
    """The counts that a program has printed: `name number name number`."""
    return {name: int(number) for name, number in re.findall(r"(\w+) (\d+)", output)}


# More threads than an arena has entries for: those of dead ones are used again.
@pytest.mark.parametrize("threads", [200, 9000])
def test_threads_that_die_are_counted_to_the_last_call(threads: int, capfd: pytest.CaptureFixture[str]) -> None:
    counts, output = counted([program("live_threads", "o2", "-pthread"), str(threads)], ["work", "step"], capfd)
    assert output.splitlines()[-1] == "OK"
    assert counts == told(output) == {"work": threads, "step": sum(n % 5 for n in range(threads))}


@pytest.mark.parametrize("children", [40, 400])
def test_forked_children_are_counted_with_their_parent(children: int, capfd: pytest.CaptureFixture[str]) -> None:
    counts, output = counted([program("live_forks", "o2"), str(children)], ["step"], capfd)
    assert output.splitlines()[-1] == "OK"
    assert counts == told(output)


def test_a_function_is_found_again_after_the_process_was_left_and_entered_anew() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        target.register(live.Counter(["gives_back"])).unregister()
        other = target.register(live.Counter(["libc.so*!getenv"]))
        again = target.register(live.Counter(["gives_back"]))
        send(running, range(100))
        until(lambda: again.counts() == {"live_values!gives_back": 100})
        assert not any(other.counts().values())


def test_a_program_that_loads_libraries_waits_for_those_only_who_want_them() -> None:
    path = program("live_loads", "o2")
    with live.launch([path]) as target:
        counter = target.register(live.Counter(["main", "libc.so.6!dlopen"]))
        arena = counter._registered_place().registry.arena
        assert target.wait() == 0
    assert not arena.events["pid"].any(), "nobody would answer"
    with live.launch([path]) as target:
        counter = target.register(live.Counter(["main", "libm.so*!*"]))
        arena = counter._registered_place().registry.arena
        assert target.wait() == 0
        assert any(label.startswith("libm.so") for label in counter.counts())
    assert arena.events["pid"].any() and not arena.events["state"].any()


def test_what_ended_children_held_is_given_back() -> None:
    with Running([built("attach_processes")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["leaf"]))
        arena = counter._registered_place().registry.arena
        for _ in range(3):
            running.say("fork")
            running.say("join")
        deadline = time.monotonic() + 30
        while set(arena.threads["pid"][arena.threads["state"] == 1].tolist()) > {running.pid}:
            assert time.monotonic() < deadline
        seen = counter.counts()
        running.say("fork")
        running.say("join")
        assert counter.counts()["attach_processes!leaf"] > seen["attach_processes!leaf"] > 100
        assert running.end() == ["wrong 0 ticked 0"]


def test_a_process_is_counted_from_the_middle_on_and_left_as_it_was() -> None:
    path = built("attach_busy")
    with Running([path, "2"]) as running:
        before = Seen.of(running.pid, path)
        with live.attach(running.pid) as target:
            counter = target.register(live.Counter(["leaf", "middle", "loop"]))
            while not all(counter.counts().values()):
                pass
            assert Seen.of(running.pid, path).code != before.code
        counts = {label.partition("!")[2]: count for label, count in counter.counts().items()}
        # middle calls leaf, and tail, which calls it; begins_with_call calls it too. Two threads, each in one call.
        assert abs(counts["leaf"] - 3 * counts["middle"]) <= 6
        assert abs(counts["loop"] - counts["middle"]) <= 4
        after = Seen.of(running.pid, path)
        assert (after.code, after.files, after.tracer) == (before.code, before.files, "0")
        assert running.end() == ["wrong 0 worked 1"]


def test_calls_of_threads_that_have_no_entry_are_missed_by_whoever_may_have_wanted_them() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        earlier = target.register(live.Counter(["gives_back"]))
        arena = earlier._registered_place().registry.arena
        arena.header["missed"] += 3  # as the agent does where the table of threads is full
        later = target.register(live.Counter(["gives_back"]))
        arena.header["missed"] += 4
        assert (earlier.missed, later.missed) == (7, 4)
        earlier.unregister()
        arena.header["missed"] += 1
        assert (earlier.missed, later.missed) == (7, 5)


def test_calls_while_a_counter_is_paused_are_not_its_own() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["gives_back"]))
        other = target.register(live.Counter(["gives_back"]))
        label = "live_values!gives_back"
        for paused, numbers in ((False, 10), (True, 20), (False, 5)):
            (counter.pause if paused else counter.resume)()
            expected = other.counts()[label] + numbers
            send(running, range(numbers))
            while other.counts()[label] != expected:
                pass
        assert counter.counts() == {label: 15}
        assert other.counts() == {label: 35}
        assert running.end("") == ["gives_back 35", "OK"]


def test_a_call_in_flight_ends_after_its_user_has_gone_and_another_one_has_the_slot() -> None:
    with Running([built("attach_held")]) as running, live.attach(running.pid) as target:
        held = ["inner", "middle", "outer"]
        target.register(live.Counter(held))  # while somebody stays, the registry does
        first = target.register(live.Totals(held))
        slot = first._registered_place().slot
        assert running.say("enter") == "entered"
        registry = first._registered_place().registry
        first.unregister()
        with registry.locked():
            registry.settle()  # its slot is free now, rather than when there are many
        second = target.register(live.Totals(held))
        assert second._registered_place().slot == slot
        assert running.say("leave") == "left 3"
        assert running.say("enter") == "entered"
        assert [row["count"] for row in first.totals().values()] == [0, 0, 0]
        assert [row["count"] for row in second.totals().values()] == [0, 0, 0], "they began before it came"
        assert running.say("leave") == "left 3"
        assert running.say("enter") == "entered"
        assert [row["count"] for row in second.totals().values()] == [1, 1, 1]
        assert running.say("leave") == "left 3"
        assert running.end() == ["bye"]
