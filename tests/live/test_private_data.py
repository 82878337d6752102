"""What users keep from the entry of a call to its exit: of any size, or counted where there is no room (R12, R13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.agent.inject import Settings
from shadowgraph.errors import UsageError
from tests.support.attached import Running
from tests.support.manners import program

# The function gives back its first argument, so that the exit knows what the entry has written. Its second argument is
# where to count: entered, right, wrong.
_HANDLERS = """
#include <shadowgraph/ops.h>
static struct {{ int64_t entered[16], right[16], wrong[16]; }} *counts;
static unsigned char pattern(uint64_t call, uint64_t at)
{{
    return (unsigned char)(call * 31 + at * 7 + {user} * 13 + (call >> 8));
}}
int on_entry(struct sg_call *call)
{{
    counts = (void *)sg_arg(call, 1);
    for (uint64_t i = 0; i < {size}; i++)
        ((unsigned char *)call->data)[i] = pattern(sg_arg(call, 0), i);
    counts->entered[{user}]++;
    return 1;
}}
void on_exit(struct sg_call *call)
{{
    int right = call->data_size == {size} && (call->data != 0) == ({size} != 0);
    for (uint64_t i = 0; right && i < {size}; i++)
        right = ((unsigned char *)call->data)[i] == pattern(call->result, i);
    (right ? counts->right : counts->wrong)[{user}]++;
}}
"""


def keeping(user: int, size: int, when: str | None = None) -> live.Ops:
    """A user that fills its data at the entry and looks at it at the exit."""
    source = _HANDLERS.format(user=user, size=size)
    return live.Ops(["down"], source=source, entry="on_entry", exit="on_exit", data_size=size, when=when)


def on(target: live.Target, sizes: Sequence[int], when: str | None = None) -> list[live.Ops]:
    return [target.register(keeping(user, size, when)) for user, size in enumerate(sizes)]


def counts_of(running: Running, depth: int) -> list[tuple[int, ...]]:
    """(entered, right, wrong) of each user, for a recursion of this depth."""
    numbers = [int(word) for word in running.say(str(depth)).split()]
    return [tuple(numbers[at : at + 3]) for at in range(0, len(numbers), 3)]


@pytest.fixture
def running() -> Iterator[Running]:
    with Running([program("live_recursion")], ready=None) as process:
        yield process


@pytest.mark.parametrize("when", [None, "duration >= 0"])
def test_several_users_keep_data_of_different_sizes_of_one_call(running: Running, when: str | None) -> None:
    sizes = [0, 1, 2, 4, 8, 16, 3, 32, 64, 128, 256, 255]
    with live.attach(running.pid) as target:
        users = on(target, sizes, when)
        for depth in (0, 1, 40, 1000):
            assert counts_of(running, depth)[: len(sizes)] == [(depth + 1, depth + 1, 0)] * len(sizes)
        assert [user.missed for user in users] == [0] * len(sizes)
    assert running.end("") == ["OK"]


def test_the_largest_data_there_may_be(running: Running) -> None:
    with pytest.raises(UsageError, match="at most 1,024 bytes"):
        keeping(0, layout.DATA_LIMIT + 1)
    with live.attach(running.pid) as target:
        users = on(target, [layout.DATA_LIMIT, 256])
        assert counts_of(running, 500)[:2] == [(501, 501, 0)] * 2
        assert [user.missed for user in users] == [0, 0]
    assert running.end("") == ["OK"]


def test_who_finds_no_room_for_its_data_misses_the_call_and_nobody_else_does(running: Running) -> None:
    with live.attach(running.pid) as target:
        users = on(target, [8, 1024, 1024, 0, 256, 512, 600, 16])
        calls = 101
        seen = counts_of(running, calls - 1)[: len(users)]
        without = [2, 6]  # of 1,888 bytes the others take 1,824
        assert seen == [(0, 0, 0) if user in without else (calls, calls, 0) for user in range(len(users))]
        assert [user.missed for user in users] == [calls if user in without else 0 for user in range(len(users))]
        users[1].unregister()
        seen = counts_of(running, calls - 1)[: len(users)]
        assert seen == [(0, 0, 0) if user in (1, 6) else (calls, calls, 0) for user in range(len(users))]
    assert running.end("") == ["OK"]


# The same in few instructions, which the agent runs from its paths in assembly: the last word of what is kept.
_SHORT = """
#include <shadowgraph/ops.h>
static struct {{ int64_t entered[16], right[16], wrong[16]; }} *counts;
#define LAST ((uint64_t *)call->data)[{size} / 8 - 1]
int on_entry(struct sg_call *call)
{{
    counts = (void *)sg_arg(call, 1);
    LAST = sg_arg(call, 0) * 16 + {user};
    counts->entered[{user}]++;
    return 1;
}}
void on_exit(struct sg_call *call)
{{
    int right = call->data_size == {size} && LAST == call->result * 16 + {user};
    counts->right[{user}] += right;
    counts->wrong[{user}] += !right;
}}
"""


@pytest.mark.parametrize("sizes", [(8,), (1024, 8, 16, 104, 24), (1024, 1024, 16), (16, 1024, 16, 1024, 800)])
def test_short_handlers_keep_data_and_miss_what_has_no_room_like_others(
    sizes: tuple[int, ...], running: Running
) -> None:
    with live.attach(running.pid) as target:
        users, calls, room = [], 501, 1888
        for user, size in enumerate(sizes):
            source = _SHORT.format(user=user, size=size)
            one = live.Ops(["down"], source=source, entry="on_entry", exit="on_exit", data_size=size)
            users.append(target.register(one))
            assert one._code.is_frugal
        fit = []
        for size in sizes:
            taken = -(-size // 16) * 16
            fit.append(taken <= room)
            room -= taken if fit[-1] else 0
        seen = counts_of(running, calls - 1)[: len(users)]
        assert seen == [(calls, calls, 0) if has_room else (0, 0, 0) for has_room in fit]
        assert [user.missed for user in users] == [0 if has_room else calls for has_room in fit]
    assert running.end("") == ["OK"]


def test_recursion_deeper_than_there_are_frames_is_missed_and_counted(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadowgraph.live.hooking.Settings", lambda: Settings(frame_limit=1024))
    with live.attach(running.pid) as target:
        users = on(target, [0, 8, 256])
        totals = target.register(live.Totals(["down"]))
        counter = target.register(live.Counter(["down"]))
        made = 0
        for depth in (100_000, 10, 100_000):
            before = [user.missed for user in users]
            seen = counts_of(running, depth)[:3]
            missed = [user.missed - earlier for user, earlier in zip(users, before, strict=True)]
            made += depth + 1
            for (entered, right, wrong), lost in zip(seen, missed, strict=True):
                assert (entered, wrong) == (right, 0)
                assert right + lost == depth + 1
                assert right == depth + 1 if depth < 900 else 900 <= right <= 1024
        assert totals.totals()["live_recursion!down"]["count"] + totals.missed == made
        assert counter.counts() == {"live_recursion!down": made}, "counting takes no frame"
    assert running.end("") == ["OK"]
