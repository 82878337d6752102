"""The functions of a user are exchanged while threads call them: at no moment do both filters hold, or none."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from shadowgraph import live
from shadowgraph.target.memory import Memory
from tests.attach.conftest import built
from tests.support.attached import Running

THREADS = 4
_PAGE = np.dtype(
    {"names": ["calls", "changes", "is_other"], "formats": ["i8"] * 3, "offsets": [8, 16, 24], "itemsize": 64}
)
_HANDLER = """
#include <shadowgraph/ops.h>
int on_entry(struct sg_call *call)
{
    *(int64_t *)sg_arg(call, 1) += 1;
    return 0;
}
"""


def test_each_call_is_seen_by_the_former_filter_or_by_the_new_one() -> None:
    with Running([built("live_exchanged"), str(THREADS)], ready=None) as running:
        assert running.process.stdout is not None
        pages_at = int(running.process.stdout.readline(), 16)
        memory = Memory(running.pid)

        def pages() -> npt.NDArray[np.void]:
            return np.frombuffer(memory.read(pages_at, THREADS * _PAGE.itemsize), _PAGE)

        def settled() -> npt.NDArray[np.void]:
            """When each thread has called both functions since."""
            begin = pages()["calls"]
            while (now := pages())["calls"].min(initial=1 << 62) < 4 or (now["calls"] - begin).min() < 4:
                time.sleep(0.0005)
            return now

        with live.attach(running.pid) as target:
            user = target.register(live.Ops(["one", "other"], source=_HANDLER, entry="on_entry"))
            place = user._registered_place()
            number = {label.partition("!")[2]: np.array([one]) for one, label in place.labels.items()}
            filters = [number["one"], number["other"]]

            def exchange(times: int) -> None:
                with place.registry.locked():
                    for _ in range(times):
                        filters.reverse()
                        place.registry.replace_functions(place.slot, filters[0])

            exchange(2)
            before = settled()
            assert not before["is_other"].any()
            for times in [1] * 60 + [2, 3] * 60:
                exchange(times)
                now = settled()
                changes = now["changes"] - before["changes"]
                # Each thread has seen each exchange, or has slept over two of them.
                assert (changes <= times).all() and ((changes - times) % 2 == 0).all(), (times, changes)
                assert (now["is_other"] == (filters[0] is number["other"])).all()
                before = now
            assert user.missed == 0
        memory.close()
        assert running.end("") == ["OK"]
