"""A function shorter than a jump needs bytes of its neighbour: hooked with it, or refused when it comes too late."""

from __future__ import annotations

import pytest

from shadowgraph import live
from shadowgraph.errors import StartError
from shadowgraph.image import SENTENCES, Reason
from tests.support.attached import Running
from tests.support.manners import program

WHY = SENTENCES[Reason.PLACE_IN_USE]


def test_a_short_function_is_hooked_with_its_neighbour_or_before_it() -> None:
    with Running([program("live_short")]) as running, live.attach(running.pid) as target:
        first = target.register(live.Counter(["tiny"]))
        second = target.register(live.Counter(["sum", "tiny"]))
        assert running.say("") == "done"
        assert first.counts() == {"live_short!tiny": 7}
        assert second.counts() == {"live_short!tiny": 7, "live_short!sum": 2}
        assert target.notes == []


def test_a_short_function_that_comes_after_its_neighbour_is_refused_and_said_to_be() -> None:
    with Running([program("live_short")]) as running, live.attach(running.pid) as target:
        target.register(live.Counter(["sum"]))
        with pytest.raises(StartError, match=f"the functions that match tiny cannot be hooked now: {WHY}"):
            target.register(live.Counter(["tiny"]))
        both = target.register(live.Counter(["tiny", "other"]))
        (note,) = target.notes
        assert note.startswith(f"1 function could not be hooked, because {WHY}; it is tiny (")
        assert running.say("") == "done"
        assert both.counts() == {"live_short!other": 1}
        assert running.end("") == ["done", "OK"]
