"""Small handlers lie in room that the first ones make, so that those who come later need no thread of the process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shadowgraph import live
from shadowgraph.ops.handler_pool import HandlerPool
from shadowgraph.target.memory import read_mappings
from tests.support.attached import Running
from tests.support.live import send, until
from tests.support.manners import program

LABEL = "live_values!gives_back"
_SOURCE = """
#include <shadowgraph/ops.h>
static const char *const words[] = {"a", "bc"};
static uint64_t seen[%d] = {1};
int on_entry(struct sg_call *call)
{
    struct { uint64_t number, seen; } own = {sg_arg(call, 0) + words[1][1] - 'c', seen[0]++};
    sg_emit(call, &own, sizeof own);
    return 0;
}
"""
SMALL, LARGE = _SOURCE % 8, _SOURCE % 5000


def emitting(source: str) -> live.Ops:
    return live.Ops([LABEL], source=source, entry="on_entry", events=[("number", "u8"), ("seen", "u8")])


def events_of(user: live.Ops, count: int) -> list[tuple[int, int]]:
    """So many events of a user."""
    found: list[tuple[int, int]] = []

    def are_there() -> bool:
        for batch in user.events(wait=lambda: False):
            found.extend(zip(batch["number"].tolist(), batch["seen"].tolist(), strict=True))
        return len(found) >= count

    until(are_there)
    return found


def test_handlers_in_the_room_and_beside_it_run_with_data_of_their_own() -> None:
    with Running([program("live_values")]) as running:
        before = {(one.start, one.permissions) for one in read_mappings(running.pid)}
        with live.attach(running.pid) as target:
            first = target.register(emitting(SMALL))
            assert first.loaded is not None and first.loaded.unit == 0
            room = first.loaded.base
            assert not any(start <= room < start + 1 for start, _ in before)
            users = [first, *(target.register(emitting(SMALL)) for _ in range(40)), target.register(emitting(LARGE))]
            units = [user.loaded.unit for user in users if user.loaded is not None]
            assert units == [*range(32), *[None] * 10]
            for turn in (1, 2):
                send(running, range(3))
                assert running.process.poll() is None
                for user in users:
                    assert events_of(user, 3) == [(number, 3 * (turn - 1) + number + 1) for number in range(3)]
            users[5].unregister()
            again = target.register(emitting(SMALL))
            assert again.loaded is not None and again.loaded.unit == 5
            send(running, [7])
            assert events_of(again, 1) == [(7, 1)], "with data as they were compiled"
            assert [user.missed for user in users] == [0] * len(users)
        assert not any(one.start <= room < one.end for one in read_mappings(running.pid)), "the room goes with us"
        assert running.end("") == ["gives_back 7", "OK"]


def test_a_linker_that_knows_other_options_makes_handlers_that_are_mapped_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "cc"
    real = shutil.which("gcc") or shutil.which("cc")
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *noseparate-code*) exit 1;; esac\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    user = emitting(SMALL)
    assert not HandlerPool.fits(user.handlers)
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        target.register(user)
        assert user.loaded is not None and user.loaded.unit is None
        send(running, [4])
        assert events_of(user, 1) == [(4, 1)]
        assert running.end("") == ["gives_back 1", "OK"]
