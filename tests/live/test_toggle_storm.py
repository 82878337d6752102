"""Users come, go, pause and go on while eight threads call: results stay right, and each sees its own calls (R8, R20).

SHADOWGRAPH_STORM_SECONDS: how long (otherwise a minute).
"""

from __future__ import annotations

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from shadowgraph import live
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.registry import Registry
from shadowgraph.live.user import Numbers
from tests.support.attached import Seen
from tests.support.storm import USERS, Span, Storm

SECONDS = float(os.environ.get("SHADOWGRAPH_STORM_SECONDS", "60"))
THREADS = 8
FUNCTIONS = ["work", "leaf"]

# Each user's exits come in the reverse order of the entries, which is that of the registrations.
_HANDLERS = """
#include <shadowgraph/ops.h>
struct page {{
    int64_t begun, ended, last_entry, last_exit, wrong_order, entries[{users}], exits[{users}];
    const int64_t *sequence;
}};
struct kept {{ struct page *page; int64_t sequence; }};
int on_entry(struct sg_call *call)
{{
    struct page *page = (struct page *)sg_arg(call, 1);
    struct kept *kept = call->data;
    *kept = (struct kept){{page, page->sequence[{user}]}};
    page->wrong_order += page->last_entry >= kept->sequence;
    page->last_entry = kept->sequence;
    page->entries[{user}]++;
    return 1;
}}
void on_exit(struct sg_call *call)
{{
    struct kept *kept = call->data;
    kept->page->wrong_order += kept->page->last_exit <= kept->sequence;
    kept->page->last_exit = kept->sequence;
    kept->page->exits[{user}]++;
}}
"""


class _Part(ABC):
    """A user that comes and goes, and what it must have seen while it was there."""

    def __init__(self, storm: Storm, target: live.Target) -> None:
        self.storm, self.target = storm, target
        self.is_on = False

    def flip(self) -> None:
        """Come, or go."""
        (self.go if self.is_on else self.come)()
        self.is_on = not self.is_on

    @abstractmethod
    def come(self) -> None:
        """Register."""

    @abstractmethod
    def go(self) -> None:
        """Unregister, and look at what was seen."""


class _Counting(_Part):
    """One of those that count by tables."""

    def __init__(self, storm: Storm, target: live.Target, make: Callable[[], live.User]) -> None:
        super().__init__(storm, target)
        self.make = make

    def come(self) -> None:
        self.user, self.span = self.make(), Span(self.storm)
        self.span.coming()
        self.target.register(self.user)
        self.span.has_come()

    def go(self) -> None:
        self.span.going()
        self.user.unregister()
        self.span.has_gone()
        for count in counts_of(self.user):
            assert self.span.least <= count <= self.span.most, self.user.name
        assert self.user.missed == 0, self.user.name


class _Pausing(_Counting):
    """One that stays, and pauses."""

    def __init__(self, storm: Storm, target: live.Target, make: Callable[[], live.User]) -> None:
        super().__init__(storm, target, make)
        super().come()
        self.is_on = True

    def come(self) -> None:
        self.span.coming()
        self.user.resume()
        self.span.has_come()

    def go(self) -> None:
        self.span.going()
        self.user.pause()
        self.span.has_gone()
        for count in counts_of(self.user):
            # Of calls that it was on for at the entry, eight may end now.
            assert self.span.least - THREADS <= count <= self.span.most, self.user.name


class _Handling(_Part):
    """One with handlers, which count in the pages of the threads."""

    def __init__(self, storm: Storm, target: live.Target, number: int) -> None:
        super().__init__(storm, target)
        self.number = number
        source = _HANDLERS.format(users=USERS, user=number)
        self.user = live.Ops(["work"], source=source, entry="on_entry", exit="on_exit", data_size=16)
        self.periods = 0
        self.span = Span(storm)

    def come(self) -> None:
        self.periods += 1
        self.storm.comes(self.number)
        self.span.coming()
        self.target.register(self.user)
        self.span.has_come()

    def go(self) -> None:
        self.span.going()
        self.user.unregister()
        self.span.has_gone()
        pages = self.storm.pages()
        entries, exits = (int(pages[name][:, self.number].sum()) for name in ("entries", "exits"))
        assert self.span.least <= entries <= self.span.most
        assert entries - self.periods * THREADS <= exits <= entries
        assert self.user.missed == 0


def counts_of(user: live.User) -> list[int]:
    """How many calls of each function it has seen."""
    if isinstance(user, live.Counter):
        return list(user.counts().values())
    assert isinstance(user, live.Histogram | live.Totals)
    rows = user.all_percentiles() if isinstance(user, live.Histogram) else user.totals()
    return [int(row["count"]) for row in rows.values()]


def test_a_slots_new_owner_gets_nothing_of_calls_that_began_before_it_came() -> None:
    with Storm(THREADS) as storm, live.attach(storm.pid) as target:
        place = target.register(live.Counter(FUNCTIONS))._registered_place()
        registry, numbers = place.registry, place.numbers
        begin, turns, slots = time.monotonic(), 0, set()
        while time.monotonic() - begin < SECONDS / 2 or turns < 100:
            make = live.Totals if turns % 4 < 2 else live.Histogram
            slot = enrolled(registry, make(FUNCTIONS), numbers[turns % 2 : turns % 2 + 1])
            with registry.locked():
                # A call of the other function is the former owner's: this one has no cells for it.
                assert registry.losses_of(slot)["missed"] == 0
                registry.remove(slot)
            slots.add(slot)
            turns += 1
        assert turns > 2 * len(slots)


def enrolled(registry: Registry, user: live.Totals | live.Histogram, numbers: Numbers) -> int:
    """Register a user on functions that are hooked, as fast as that can be done; its slot."""
    with registry.locked():
        cells = Cells(registry.arena)
        size = (user.pool_size(registry, numbers) + 63) // 64 * 64
        at = cells.find_pool(size)
        return registry.add(user.row(registry, cells, numbers, at).with_pool(at, size), numbers)


def test_each_user_sees_its_own_calls_in_a_storm_of_comings_and_goings() -> None:
    choose = random.Random(11)
    with Storm(THREADS) as storm:
        with live.attach(storm.pid) as target:
            made: list[Callable[[], live.User]] = [
                lambda: live.Counter(FUNCTIONS),
                lambda: live.Counter(FUNCTIONS, when="arg(0) >= 0"),
                lambda: live.Totals(FUNCTIONS),
                lambda: live.Histogram(FUNCTIONS),
                lambda: live.Histogram(FUNCTIONS, value="arg(0)"),
                lambda: live.Histogram(FUNCTIONS, value="arg(0)", when="result >= 0"),
            ]
            pausing = [_Pausing(storm, target, make) for make in made]
            coming = [_Counting(storm, target, make) for make in made]
            handling = [_Handling(storm, target, number) for number in range(5)]
            parts: list[_Part] = [*coming, *handling]
            begin, seen, turns = time.monotonic(), [], 0
            while time.monotonic() - begin < SECONDS or not seen:
                for _ in range(8):
                    choose.choice(pausing).flip()
                choose.choice(parts).flip()
                turns += 1
                if turns % 40 == 0:
                    for part in parts:
                        if part.is_on:
                            part.flip()
                    seen.append(Seen.of(storm.pid, ""))
                assert np.all(storm.pages()["wrong_order"] == 0)
        resident = [one.resident for one in seen]
        assert resident[-1] - resident[len(resident) // 2] < 512, resident
        assert seen[-1].size == seen[len(seen) // 2].size
        assert storm.running.end("") == ["OK"]
