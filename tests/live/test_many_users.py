"""Sixty-four users on one function: who sees which entries and exits, and in which order (R1, R5, R9)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.errors import StartError
from tests.support.attached import Running
from tests.support.manners import program

# The function's arguments are a number and a log. A user writes 1000 + its own number at the entry, and minus that at
# the exit; which calls it wants the exit of is drawn from the number and its own (splitmix64).
_HANDLERS = """
#include <shadowgraph/ops.h>
struct log {{ int64_t count; int64_t entries[]; }};
static int drawn(uint64_t x)
{{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (x ^ x >> 31) & 1;
}}
int on_entry(struct sg_call *call)
{{
    struct log *log = (struct log *)sg_arg(call, 1);
    *(struct log **)call->data = log;
    log->entries[log->count++] = 1000 + {user};
    return {always} || drawn(sg_arg(call, 0) * 64 + {user});
}}
void on_exit(struct sg_call *call)
{{
    struct log *log = *(struct log **)call->data;
    log->entries[log->count++] = -1000 - {user};
}}
"""
_WORD = (1 << 64) - 1


def drawn(number: int, user: int) -> bool:
    """Whether a user wants the exit of the call with this number, as its handler decides."""
    x = (number * 64 + user + 0x9E3779B97F4A7C15) & _WORD
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _WORD
    return bool((x ^ x >> 31) & 1)


def logging(user: int, *, always: bool = True) -> live.Ops:
    source = _HANDLERS.format(user=user, always=int(always))
    return live.Ops(["logged"], source=source, entry="on_entry", exit="on_exit", data_size=8, name=f"user {user}")


def expected(order: list[int], wanted: list[int]) -> list[int]:
    """The log of a call: entries in the order of registration, the function, exits in reverse."""
    return [*(1000 + user for user in order), 0, *(-1000 - user for user in reversed(wanted))]


@pytest.fixture
def running() -> Iterator[Running]:
    with Running([program("live_log")], ready=None) as process:
        yield process


def log_of(running: Running, number: int) -> list[int]:
    return [int(word) for word in running.say(str(number)).split()]


def test_sixty_four_users_see_each_call_once_and_the_next_one_is_refused(running: Running) -> None:
    with live.attach(running.pid) as target:
        order = list(range(layout.USERS))
        users = [target.register(logging(number)) for number in order]
        for number in range(20):
            assert log_of(running, number) == expected(order, order)
        mappings = maps(running.pid)
        with pytest.raises(StartError, match="all 64 places for users are taken"):
            target.register(logging(64))
        assert maps(running.pid) == mappings, "its code has been taken out again"
        assert log_of(running, 20) == expected(order, order), "the others are unharmed"
        assert [user.missed for user in users] == [0] * layout.USERS
    assert log_of(running, 21) == [0]
    assert running.end("") == ["OK"]


def test_each_user_gets_the_exits_that_it_asked_for_and_no_other(running: Running) -> None:
    order = list(range(layout.USERS))
    with live.attach(running.pid) as target:
        for user in order:
            target.register(logging(user, always=False))
        for number in range(300):
            wanted = [user for user in order if drawn(number, user)]
            assert log_of(running, number) == expected(order, wanted), number
    assert running.end("") == ["OK"]


def test_the_order_is_that_of_registration_whatever_slots_have_been_given_up(running: Running) -> None:
    choose = random.Random(5)
    with live.attach(running.pid) as target:
        others = [target.register(live.Counter(["logged"])) for _ in range(54)]
        users = {number: target.register(logging(number)) for number in range(9)}
        slots = [place_of(user) for user in users.values()]
        assert max(slots) == layout.USERS - 1, "from here on, slots are used again"
        for new in range(9, 30):
            users.pop(choose.choice(list(users)[1:-1])).unregister()
            if new % 3 == 0:
                others.pop(choose.randrange(len(others))).unregister()
            users[new] = target.register(logging(new))
            slots = [place_of(user) for user in users.values()]
            assert log_of(running, new) == expected(list(users), list(users)), slots
        assert slots != sorted(slots)
    assert running.end("") == ["OK"]


def place_of(user: live.User) -> int:
    """The slot of a user."""
    return user._registered_place().slot


def maps(pid: int) -> list[str]:
    """The mappings of a process that are executable."""
    with open(f"/proc/{pid}/maps") as file:
        return [line for line in file if "x" in line.split()[1]]
