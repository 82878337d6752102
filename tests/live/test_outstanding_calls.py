"""A user is taken off while a call that it wants the exit of is blocked in read(): nobody gets that exit (R10, R11)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.live.user import Numbers
from shadowgraph.target.memory import Memory, read_mappings
from tests.attach.conftest import built
from tests.support.attached import Running

# Says at the entry 1, at the exit 2. What the exit is to find is 3 if this very user has put it there.
_HANDLERS = """
#include <shadowgraph/ops.h>
static int tell(struct sg_call *call, int64_t what)
{
    return sg_emit(call, &what, sizeof what);
}
int on_entry(struct sg_call *call)
{
    *(int64_t *)call->data = 3;
    return tell(call, 1);
}
void on_exit(struct sg_call *call)
{
    tell(call, *(int64_t *)call->data == 3 ? 2 : -1);
}
"""
_LARGE = _HANDLERS.replace("static int tell", "char room[100000];\nstatic int tell")
_HELD = ["inner", "middle", "outer"]


@pytest.fixture
def running() -> Iterator[Running]:
    with Running([built("attach_held")]) as process:
        yield process


def telling(source: str = _HANDLERS) -> live.Ops:
    """A user that tells of its entries and exits."""
    return live.Ops(
        _HELD, source=source, entry="on_entry", exit="on_exit", data_size=8, events=[("what", "i8")], name="telling"
    )


def told(user: live.Ops) -> list[int]:
    """What it has told since it was last asked."""
    return [int(what) for batch in user.events(wait=lambda: False) for what in batch["what"]]


def code_at(pid: int, address: int) -> bytes | None:
    """Some of what is mapped at an address; None if nothing is."""
    if not any(mapping.start <= address < mapping.end for mapping in read_mappings(pid)):
        return None
    memory = Memory(pid)
    code = memory.read(address, 32)
    memory.close()
    return code


@pytest.mark.parametrize(
    ("source", "left"),
    [
        pytest.param(_HANDLERS, bytes(32), id="from the room for small ones"),
        pytest.param(_LARGE, None, id="with its memory"),
    ],
)
def test_the_code_of_a_handler_goes_while_its_calls_are_in_flight(
    running: Running, source: str, left: bytes | None
) -> None:
    with live.attach(running.pid) as target:
        user = target.register(telling(source))
        assert user.loaded is not None
        code = user.loaded.exit
        assert running.say("enter") == "entered"
        assert code_at(running.pid, code) not in (None, bytes(32))
        user.unregister()
        assert code_at(running.pid, code) == left
        assert told(user) == [1, 1, 1]
        assert running.say("leave") == "left 3", "each call has reached its caller"
        assert running.say("enter") == "entered"
        assert running.say("leave") == "left 3"
        assert told(user) == []
    assert code_at(running.pid, code) is None, "nothing of it stays when we have left"
    assert running.end() == ["bye"]


# So many registrations come between the old owner of the slot and the new one. The first ones are real; what more of
# them would change of the registry is its epoch, which counts them.
@pytest.mark.parametrize("between", [0, 1 << 10, 1 << 16, 1 << 20, 1 << 32, 1 << 56])
def test_a_new_owner_of_the_slot_gets_no_exit_of_the_old_ones_calls(running: Running, between: int) -> None:
    with live.attach(running.pid) as target:
        target.register(live.Counter(_HELD))  # while somebody stays, the registry does
        first = target.register(telling())
        place = first._registered_place()
        assert running.say("enter") == "entered"
        first.unregister()
        settle(place.registry)
        pass_through(place.registry, place.slot, place.numbers, between)
        second = target.register(telling())
        assert second._registered_place().slot == place.slot
        assert second._registered_place().registry is place.registry
        assert running.say("leave") == "left 3"
        assert (told(first), told(second)) == ([1, 1, 1], []), "what is in flight began before it came"
        assert running.say("enter") == "entered"
        assert running.say("leave") == "left 3"
        assert told(second) == [1, 1, 1, 2, 2, 2]
        assert second.missed == 0
    assert running.end() == ["bye"]


def test_who_comes_when_all_have_gone_gets_no_exit_of_their_calls(running: Running) -> None:
    with live.attach(running.pid) as target:
        first = target.register(telling())
        assert running.say("enter") == "entered"
        first.unregister()
        second = target.register(telling())  # in a registry of its own
        assert running.say("leave") == "left 3"
        assert (told(first), told(second)) == ([1, 1, 1], [])
    assert running.end() == ["bye"]


def settle(registry: Registry) -> None:
    """Let the slots of those that have gone be free now; usually they are when there are many."""
    with registry.locked():
        registry.settle()


def pass_through(registry: Registry, slot: int, numbers: Numbers, times: int) -> None:
    """Register and take off users of a slot, so many times."""
    user = UserRow(layout.USER_HANDLER, "in between", at_entry=True, at_exit=True, with_data=True)
    real = min(times, 1 << 10)
    for _ in range(real):
        with registry.locked():
            assert registry.add(user, numbers) == slot
            registry.remove(slot)
            registry.user(slot)["kind"] = layout.USER_FREE  # at once, since nobody calls
    registry.arena.registry["epoch"] += times - real
