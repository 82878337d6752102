"""Eight threads share few instances while users come and go: a call has one for itself, or is missed (R14, R8)."""

from __future__ import annotations

import os
import random
import time

import numpy as np

from shadowgraph import live
from tests.live.test_instances import holders
from tests.support.storm import USERS, Span, Storm

SECONDS = float(os.environ.get("SHADOWGRAPH_STORM_SECONDS", "15")) / 2
THREADS = 8
COUNTS = [1, 2, 3, 7, 8, 60]

# Whoever has an instance writes its number all over it, and finds nothing else there at the exit. Some take their time,
# so that others come meanwhile.
_HANDLERS = """
#include <shadowgraph/ops.h>
struct page {{
    int64_t begun, ended, last_entry, last_exit, wrong_order, entries[{users}], exits[{users}];
    const int64_t *sequence;
}};
int on_entry(struct sg_call *call)
{{
    struct page *page = (struct page *)sg_arg(call, 1);
    struct page **kept = call->data;
    *kept = page;
    for (uint64_t i = 0; i < call->instance_size / 8; i++)
        ((volatile uint64_t *)call->instance)[i] = (uint64_t)page + sg_arg(call, 0);
    for (volatile int i = 0; sg_arg(call, 0) % 256 == 0 && i < 20000; i++)
        ;
    page->entries[{user}]++;
    return 1;
}}
void on_exit(struct sg_call *call)
{{
    struct page *page = *(struct page **)call->data;
    for (uint64_t i = 0; i < call->instance_size / 8; i++)
        page->wrong_order += ((volatile uint64_t *)call->instance)[i] != (uint64_t)page + call->result / 3 - 1;
    page->exits[{user}]++;
}}
"""


class _Part:
    """A user with some instances, which comes and goes."""

    def __init__(self, storm: Storm, target: live.Target, number: int) -> None:
        self.storm, self.target, self.number = storm, target, number
        source = _HANDLERS.format(users=USERS, user=number)
        self.user = live.Ops(
            ["work"],
            source=source,
            entry="on_entry",
            exit="on_exit",
            data_size=8,
            instances=COUNTS[number],
            instance_size=200,
        )
        self.span = Span(storm)
        self.is_on, self.lost, self.periods = False, 0, 0

    def flip(self) -> None:
        """Come, or go."""
        self.is_on = not self.is_on
        if self.is_on:
            self.periods += 1
            self.span.coming()
            self.target.register(self.user)
            self.span.has_come()
            return
        self.span.going()
        self.user.unregister()
        self.span.has_gone()
        self.lost += self.user.missed
        pages = self.storm.pages()
        entries, exits = (int(pages[name][:, self.number].sum()) for name in ("entries", "exits"))
        assert self.span.least <= entries + self.lost <= self.span.most
        assert entries - self.periods * THREADS <= exits <= entries
        if COUNTS[self.number] >= THREADS:
            assert self.lost == 0


def test_a_call_has_an_instance_for_itself_in_a_storm_of_users() -> None:
    choose = random.Random(7)
    with Storm(THREADS) as storm:
        with live.attach(storm.pid) as target:
            parts = [_Part(storm, target, number) for number in range(len(COUNTS))]
            begin, turns = time.monotonic(), 0
            while time.monotonic() - begin < SECONDS or turns < 30:
                choose.choice(parts).flip()
                turns += 1
                assert np.all(storm.pages()["wrong_order"] == 0)
            for part in parts:
                if not part.is_on:
                    part.flip()
            let_each_call(storm, 10_000)
            for part in parts:
                part.user.pause()
            let_each_call(storm, 2)
            assert [holders(part.user) for part in parts] == [0] * len(parts)
            assert sum(part.lost + part.user.missed for part in parts) > 0
        assert storm.running.end("") == ["OK"]


def let_each_call(storm: Storm, calls: int) -> None:
    """Wait until each thread has begun so many calls more."""
    before = storm.pages()["begun"]
    while np.any(storm.pages()["begun"] < before + calls):
        time.sleep(0.001)
