"""Instances: what handlers keep of a call that is too large for its frame comes from a pool, and goes back (R14)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

import shadowgraph as sg
from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.errors import UsageError
from tests.support.attached import Running
from tests.support.manners import program

RETURNS, THROWS, JUMPS, ENDS_THREAD, IS_KILLED, FORKS, IS_INTERRUPTED = range(7)

# The entry fills the instance in a way that belongs to this call alone, and the exit looks whether it has stayed so.
HANDLERS = """
#include <shadowgraph/ops.h>
struct counts {{ int64_t entered, right, wrong; }};
struct kept {{ struct counts *counts; int64_t number; }};
static unsigned char pattern(int64_t number, uint64_t at)
{{
    return (unsigned char)(number * 31 + at * 7 + (number >> 8));
}}
int on_entry(struct sg_call *call)
{{
    struct kept *kept = call->data;
    *kept = (struct kept){{(struct counts *)sg_arg(call, 1), (int64_t)sg_arg(call, 0)}};
    __atomic_fetch_add(&kept->counts->entered, 1, 0);
    for (uint64_t i = 0; i < call->instance_size; i++)
        ((unsigned char *)call->instance)[i] = pattern(kept->number, i);
    return {wants};
}}
void on_exit(struct sg_call *call)
{{
    struct kept *kept = call->data;
    int right = call->instance_size == {size} && (int64_t)call->result == kept->number;
    for (uint64_t i = 0; right && i < {size}; i++)
        right = ((unsigned char *)call->instance)[i] == pattern(kept->number, i);
    __atomic_fetch_add(right ? &kept->counts->right : &kept->counts->wrong, 1, 0);
}}
"""


def keeping(count: int, size: int, wants: str = "1", when: str | None = None) -> live.Ops:
    source = HANDLERS.format(size=size, wants=wants)
    return live.Ops(
        ["down"],
        source=source,
        entry="on_entry",
        exit="on_exit",
        data_size=16,
        instances=count,
        instance_size=size,
        when=when,
    )


def seen(running: Running, how: int, depth: int) -> tuple[int, ...]:
    """(entered, right, wrong) of a recursion that ends in some way; depth 0 is one call."""
    return tuple(int(word) for word in running.say(f"{how} {depth}").split())


def holders(user: live.Ops) -> int:
    """How many instances belong to calls."""
    place = user._registered_place()
    row = place.registry.user(place.slot)
    at = int(row["instances_at"]) + layout.instances_dtype.itemsize
    words = place.registry.arena.pool[at : at + 8 * int(row["instances"])].view(np.uint64)
    return int((words != 0).sum())


@pytest.fixture
def running() -> Iterator[Running]:
    with Running([program("live_instances")], ready=None) as process:
        yield process


def test_with_one_instance_and_a_recursion_of_five_four_are_missed(running: Running) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(1, 256))
        for turn in range(1, 4):
            assert seen(running, RETURNS, 4) == (1, 1, 0)
            assert user.missed == 4 * turn
        assert holders(user) == 0
    assert running.end("") == ["OK"]


@pytest.mark.parametrize("when", [None, "duration >= 0", "arg(0) >= 0"])
@pytest.mark.parametrize(("count", "size"), [(1, 1), (7, 63), (100, 64), (3000, 1000), (2048, 65536)])
def test_calls_have_instances_of_any_size_and_number(running: Running, count: int, size: int, when: str | None) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(count, size, when=when))
        lost = 0
        for depth in (0, 6, 150, 10):
            calls, served = depth + 1, min(depth + 1, count)
            assert seen(running, RETURNS, depth) == (served, served, 0)
            lost += calls - served
        assert (user.missed, holders(user)) == (lost, 0)
    assert running.end("") == ["OK"]


def test_thousands_of_calls_have_large_instances_at_once(running: Running) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(4096, 32768))
        assert seen(running, RETURNS, 5000) == (4096, 4096, 0)
        assert (user.missed, holders(user)) == (5001 - 4096, 0)
    assert running.end("") == ["OK"]


def test_a_call_whose_exit_is_not_wanted_keeps_its_instance_no_longer_than_its_entry(running: Running) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(2, 64, wants="kept->number % 2"))
        # Of the numbers 5000 to 5009 the odd ones keep theirs: 5001 and 5003 have both, all from 5004 on find none.
        assert seen(running, RETURNS, 9) == (4, 2, 0)
        assert (user.missed, holders(user)) == (6, 0)
    assert running.end("") == ["OK"]


def test_a_call_that_its_condition_leaves_out_at_the_exit_gives_its_instance_back(running: Running) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(3, 64, when="result == 5000"))
        for _ in range(3):
            assert seen(running, RETURNS, 2) == (3, 1, 0)
        assert (user.missed, user.filtered, holders(user)) == (0, 6, 0)
    assert running.end("") == ["OK"]


@pytest.mark.parametrize("how", [THROWS, JUMPS])
def test_calls_left_without_returning_give_their_instances_back(running: Running, how: int) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(5, 512))
        for turn in range(1, 4):
            assert seen(running, how, 4) == (5, 0, 0)
            assert seen(running, RETURNS, 4) == (5, 5, 0)
            assert (user.missed, user.unwound, holders(user)) == (0, 5 * turn, 0)
    assert running.end("") == ["OK"]


def test_a_thread_that_ends_in_its_calls_gives_their_instances_back(running: Running) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(5, 512))
        for turn in range(1, 6):
            assert seen(running, ENDS_THREAD, 4) == (5, 0, 0)
            served, lost = 0, user.missed
            while served < 5:  # pthread_join() returns a little before the kernel says that the thread is gone
                entered, right, wrong = seen(running, RETURNS, 4)
                assert (entered, wrong) == (right, 0)
                lost += 5 - right
                served = right
                assert user.missed == lost
            assert (user.unwound, holders(user)) == (5 * turn, 0)
    assert running.end("") == ["OK"]


def test_a_forked_child_takes_and_gives_back_its_own_and_leaves_those_of_its_parent_alone(running: Running) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(5, 512))
        for _ in range(3):
            # The child returns from its parent's calls while the parent is still in them.
            assert seen(running, FORKS, 4) == (5, 5, 0)
            assert (user.missed, holders(user)) == (0, 0)
    assert running.end("") == ["OK"]


def test_what_a_killed_process_had_is_given_back_by_the_controller(running: Running) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(5, 512))
        for _ in range(2):
            assert seen(running, IS_KILLED, 4) == (5, 0, 0)
            assert holders(user) == 5
            began = time.monotonic()
            while holders(user):
                assert time.monotonic() - began < 10
                time.sleep(0.01)
            assert seen(running, RETURNS, 4) == (5, 5, 0)
        assert user.missed == 0
    assert running.end("") == ["OK"]


def test_a_users_instances_are_zeros_at_first_and_their_memory_is_given_back(running: Running) -> None:
    source = """
    #include <shadowgraph/ops.h>
    int on_entry(struct sg_call *call)
    {
        int64_t *counts = (int64_t *)sg_arg(call, 1), sum = 0;
        for (uint64_t i = 0; i < call->instance_size; i++)
            sum += ((unsigned char *)call->instance)[i];
        counts[0]++;
        counts[sum ? 2 : 1]++;
        for (uint64_t i = 0; i < call->instance_size; i++)
            ((unsigned char *)call->instance)[i] = 1;
        return 1;
    }
    void on_exit(struct sg_call *call) { (void)call; }
    """
    with live.attach(running.pid) as target:
        target.register(live.Counter(["down"]))
        used = []
        for _ in range(4):
            user = live.Ops(
                ["down"], source=source, entry="on_entry", exit="on_exit", instances=99, instance_size=65536
            )
            target.register(user)
            registry = user._registered_place().registry
            assert seen(running, RETURNS, 98) == (99, 99, 0)
            used.append(shared_memory_of(running.pid))
            assert seen(running, RETURNS, 98) == (99, 0, 99)
            user.unregister()
            with registry.locked():
                registry.settle()
            assert shared_memory_of(running.pid) < used[-1] - 6000
        assert used[-1] < used[0] + 1000
    assert running.end("") == ["OK"]


def shared_memory_of(pid: int) -> int:
    """In KiB."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssShmem"))


def test_several_users_have_instances_of_one_call(running: Running) -> None:
    with live.attach(running.pid) as target:
        users = [target.register(keeping(count, 64 + count)) for count in (2, 4, 100)]
        entered, right, wrong = seen(running, RETURNS, 9)
        assert (entered, right, wrong) == (16, 16, 0)
        assert [user.missed for user in users] == [8, 6, 0]
        users[1].unregister()
        assert seen(running, THROWS, 9) == (12, 0, 0)
        assert seen(running, RETURNS, 9) == (12, 12, 0)
        assert [holders(users[0]), holders(users[2])] == [0, 0]
    assert running.end("") == ["OK"]


@pytest.mark.parametrize("size", [8, 3000])
def test_calls_that_signals_leave_at_any_instruction_give_their_instances_back(running: Running, size: int) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(4, size))
        for _ in range(3):
            entered, right, wrong = seen(running, IS_INTERRUPTED, 2000)
            assert entered >= right > 0 and wrong == 0
            lost = user.missed
            assert seen(running, RETURNS, 3) == (4, 4, 0)
            assert (user.missed, holders(user)) == (lost, 0)
    assert running.end("") == ["OK"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"instances": 4}, "belong together"),
        ({"instance_size": 4}, "belong together"),
        ({"instances": -1, "instance_size": 4}, "at most 65,536"),
        ({"instances": 70000, "instance_size": 4}, "at most 65,536"),
        ({"instances": 1, "instance_size": 65537}, "at most 65,536 bytes"),
        ({"instances": 2049, "instance_size": 65536}, "more than 128 MiB"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(given: dict[str, int], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        sg.Ops(["down"], source=HANDLERS.format(size=1, wants=1), entry="on_entry", **given)
