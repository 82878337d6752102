"""A caller and what it tail-calls, with users on either: all ends at the one return, the inner call first (R21)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import pytest

from shadowgraph import live
from tests.support.attached import Running
from tests.support.manners import program

# A user writes its number at the entry, minus that at the exit, and the result behind it.
_HANDLERS = """
#include <shadowgraph/ops.h>
struct log {{ int64_t count; int64_t entries[]; }};
int on_entry(struct sg_call *call)
{{
    struct log *log = (struct log *)sg_arg(call, 1);
    *(struct log **)call->data = log;
    log->entries[log->count++] = {user};
    return {wants};
}}
void on_exit(struct sg_call *call)
{{
    struct log *log = *(struct log **)call->data;
    log->entries[log->count++] = -{user};
    log->entries[log->count++] = (int64_t)call->result;
}}
"""
_FUNCTIONS = {1: ["first"], 2: ["second"], 3: ["first", "second"]}


def expected(users: Sequence[int], wanting: Sequence[int], result: int) -> list[int]:
    """The log of a call: entries as they come, the function, then exits in reverse, all with the same result."""
    entered = [user for name in ("first", "second") for user in users if name in _FUNCTIONS[user]]
    ended = [user for user in reversed(entered) if user in wanting]
    return [*entered, 0, *(word for user in ended for word in (-user, result))]


def subsets(of: Iterable[int]) -> list[tuple[int, ...]]:
    known = sorted(of)
    return [subset for size in range(len(known) + 1) for subset in combinations(known, size)]


# All choices of users, and of those of them that do not want their exits.
@pytest.mark.parametrize(
    ("users", "content"), [(one, some) for one in subsets(_FUNCTIONS) for some in subsets(one)][1:]
)
def test_users_of_any_subset_of_caller_and_tail_called(users: tuple[int, ...], content: tuple[int, ...]) -> None:
    wanting = [user for user in users if user not in content]
    with Running([program("live_tail", "o2")], ready=None) as running:
        with live.attach(running.pid) as target:
            for user in users:
                source = _HANDLERS.format(user=user, wants=int(user in wanting))
                functions = _FUNCTIONS[user]
                target.register(live.Ops(functions, source=source, entry="on_entry", exit="on_exit", data_size=8))
            for number in range(50):
                log = [int(word) for word in running.say(str(number)).split()]
                assert log == expected(users, wanting, (number + 1) * 2)
            assert all(user["missed"] == 0 for user in target.users)
        assert running.end("") == ["OK"]
