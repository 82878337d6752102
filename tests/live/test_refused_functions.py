"""Functions that match and cannot be hooked while others can: how many, which, why, and where to look."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from shadowgraph import live
from shadowgraph.image import SENTENCES, Reason
from tests.support.attached import Running
from tests.support.live import SHADOWGRAPH
from tests.support.manners import program, recorder, run

HANDLER = "int on_entry(struct sg_call *call) { return 0; }"
WHY = SENTENCES[Reason.NO_CALLER]
CHOSEN = ["-f", "re:^(main|_start)$"]


def said(path: str) -> str:
    return f"1 function could not be hooked, because {WHY}; it is _start (shadowgraph functions --refused {path})"


@pytest.mark.parametrize("words", [["count"], ["hist"], ["probe", "--code", HANDLER]], ids=lambda words: str(words[0]))
def test_commands_say_it_as_record_does(words: Sequence[str], tmp_path: Path) -> None:
    path = program("live_short")
    recorded = [word for word in recorder(*CHOSEN, trace=tmp_path / "t.sgt") if word != "-q"]
    ended = run([*recorded, path], stdin="\n")
    assert ended.errors.splitlines().count(f"shadowgraph: {said(path)}") == 1
    ended = run([*SHADOWGRAPH, *words, *CHOSEN, "--", path], stdin="\n")
    assert ended.errors.splitlines().count(f"shadowgraph: {said(path)}") == 1
    ended = run([*SHADOWGRAPH, *words, "--json", *CHOSEN, "--", path], stdin="\n")
    assert json.loads(ended.lines[-1])["problems"].count(said(path)) == 1


def test_top_says_it_too() -> None:
    path = program("live_short")
    with Running([path]) as running:
        ended = run(
            [*SHADOWGRAPH, "top", "--json", "--interval", "10ms", "--iterations", "1", *CHOSEN, str(running.pid)]
        )
        assert json.loads(ended.lines[-1])["problems"].count(said(path)) == 1
        assert running.end("") == ["done", "OK"]


def test_where_it_says_to_look_the_reason_stands() -> None:
    path = program("live_short")
    listed = run([*SHADOWGRAPH, "functions", "--refused", path]).lines
    assert any(line.endswith(f"_start  — not hookable: {WHY}") for line in listed)


def test_what_is_refused_is_said_once_however_many_users_want_it() -> None:
    path = program("live_short")
    with Running([path]) as running, live.attach(running.pid) as target:
        target.register(live.Counter(["main"]))
        assert target.notes == []
        for _ in range(2):
            target.register(live.Counter(["main", "_start"]))  # all that can be hooked of these is hooked already
            assert target.notes == [said(path)]
        target.register(live.Counter(["main", "re:^setjmp$"]))
        assert running.end("") == ["done", "OK"]


def test_several_are_named_with_their_modules_up_to_five() -> None:
    path = program("live_short")
    patterns = [
        "main",
        "_start",
        "libc.so.6!re:^(_setjmp|_dl_runtime_resolve.*|_Unwind.*|vfork|.*setjmp|dl(sym|vsym|open))$",
    ]
    with Running([path]) as running, live.attach(running.pid) as target:
        target.register(live.Counter(patterns))
        (note,) = target.notes
        found = re.fullmatch(
            r"(\d+) functions could not be hooked, \d+ of them for this reason: (.*); they are (.*) \(shadowgraph .*\)",
            note,
        )
        assert found is not None, note
        count, names = int(found[1]), found[3]
        shown, _, more = names.partition(" and ")
        assert count > 5
        assert more == f"{count - 5} more"
        assert len(shown.split(", ")) == 5
        assert found[2] in SENTENCES.values()
        assert all(name == "_start" or name.endswith(" [libc.so.6]") for name in shown.split(", "))
        assert running.end("") == ["done", "OK"]
