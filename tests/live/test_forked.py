"""What a forked child loads by itself is seen by live users as what the process itself loads."""

from __future__ import annotations

from pathlib import Path

import pytest

import shadowgraph as sg
from shadowgraph import live
from shadowgraph.target import ptrace
from tests.support.attached import Running
from tests.support.forked import forked

PATTERN = "libforked*!count_*"


def counted(user: live.Counter) -> dict[int, int]:
    """The counts of each library, by its number."""
    counts = {int(label.removeprefix("libforked")[0]): count for label, count in user.counts().items()}
    return {number: count for number, count in sorted(counts.items()) if count}


def say(running: Running, *lines: str) -> list[int]:
    """What the program answers to lines."""
    return [int(running.say(line)) for line in lines]


def test_two_libraries_at_one_address_in_parent_and_child_are_counted_apart() -> None:
    with Running(forked()) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter([PATTERN]))
        _, one, two, *_ = say(running, "fork", "open 1", "child open 2", "call 1 5", "child call 2 7", "call 1 1")
        assert one == two, "the case that this is about: the same address in both"
        assert counted(counter) == {1: 6, 2: 7}
        assert running.end() == ["OK"]
        assert counted(counter) == {1: 6, 2: 7}


def test_a_library_at_one_place_or_at_several_is_counted_together() -> None:
    with Running(forked()) as running, live.attach(running.pid) as target:
        users = [target.register(live.Counter([PATTERN])), target.register(live.Counter([PATTERN], when="arg(0) >= 0"))]
        totals = target.register(live.Totals([PATTERN]))
        say(
            running,
            "fork",
            "child open 1",
            "child call 1 3",
            "child fork",
            "child child call 1 2",
            "child child open 2",
        )
        same = say(running, "open 1", "call 1 4")[0]
        say(running, "fork", "child close 1", "child open 2")
        elsewhere = say(running, "child open 1", "child call 1 5", "child call 2 1")[0]
        assert elsewhere != same
        assert [counted(user) for user in users] == [{1: 14, 2: 1}] * 2
        found = {label: row["count"] for label, row in totals.totals().items() if row["count"]}
        assert found == {"libforked1.so!count_1": 14, "libforked2.so!count_2": 1}
        assert running.end() == ["OK"]


def test_who_comes_later_sees_what_a_child_has_loaded_before() -> None:
    with Running(forked()) as running, live.attach(running.pid) as target:
        first = target.register(live.Counter(["libforked*!inner_*"]))
        say(running, "fork", "child open 1", "open 2", "child call 1 2")
        second = target.register(live.Counter([PATTERN]))
        say(running, "child call 1 3", "call 2 1")
        assert (counted(first), counted(second)) == ({1: 5, 2: 1}, {1: 3, 2: 1})
        first.replace_functions([PATTERN, "libforked*!inner_*"])
        say(running, "child call 1 1")
        assert sum(first.counts().values()) == 5 + 1 + 2
        assert running.end() == ["OK"]


def test_several_controllers_have_hooked_what_a_child_loads_before_the_first_call(tmp_path: Path) -> None:
    with Running(forked()) as running, live.attach(running.pid) as one, live.attach(running.pid) as two:
        first = one.register(live.Counter([PATTERN]))
        trace = two.register(sg.Recorder(tmp_path / "t.sgt", ["libforked*!*_*"]))
        second = two.register(live.Counter(["libforked*!inner_*", PATTERN]))
        places = say(running, "fork", "child open 1", "open 2", "child call 1 3", "call 2 2", "open 1", "call 1 1")
        assert places[1] == places[2]
        assert (counted(first), sum(second.counts().values())) == ({1: 4, 2: 2}, 12)
        one.close()
        say(running, "child open 3", "child call 3 1", "child call 1 1")
        trace.unregister()
        assert running.end() == ["OK"]
    with sg.open(tmp_path / "t.sgt") as opened:
        names = zip(*(opened.functions[name].to_pylist() for name in ("name", "calls")), strict=True)
        found = {name: calls for name, calls in names if name.startswith(("count_", "inner_"))}
    assert found == {
        f"{name}_{number}": calls for name in ("count", "inner") for number, calls in ((1, 5), (2, 2), (3, 1))
    }


def test_what_cannot_be_hooked_in_a_child_is_said() -> None:
    with Running(forked()) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter([PATTERN]))
        (child,) = say(running, "fork")
        ptrace.seize(child)
        del target._hooking.notes[:]
        say(running, "child open 1", "child call 1 2", "open 2", "call 2 1")
        assert counted(counter) == {2: 1}
        said = f"{PATTERN}: a forked child has loaded libforked1.so by itself; calls there are not seen: "
        assert [note.startswith(said) for note in target.notes] == [True]
        ptrace.interrupt(child)
        ptrace.wait_stop(child)
        ptrace.detach(child)
        assert running.end() == ["OK"]


@pytest.mark.parametrize("user", ["Counter", "Totals", "Histogram", "Ops"])
def test_every_kind_of_user_has_the_first_call_of_a_child(user: str) -> None:
    source = "#include <shadowgraph/ops.h>\nint on_entry(struct sg_call *call) { (void)call; return 0; }\n"
    with Running(forked()) as running, live.attach(running.pid) as target:
        more = {"source": source, "entry": "on_entry"} if user == "Ops" else {}
        one = target.register(getattr(live, user)([PATTERN], **more))
        counter = target.register(live.Counter([PATTERN]))
        say(running, "fork", "child open 1", "child call 1 3")
        assert (counted(counter), one.missed, target.notes[1:]) == ({1: 3}, 0, [])
        if isinstance(one, live.Totals):
            assert [row["count"] for row in one.totals().values()] == [3]
        if isinstance(one, live.Histogram):
            assert sum(count for _, _, count in one.buckets("libforked1.so!count_1")) == 3
        assert running.end() == ["OK"]
