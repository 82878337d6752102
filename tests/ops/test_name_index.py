"""The index of names chooses what looking at each function would; a user on what is known is there at once."""

from __future__ import annotations

import pytest

from shadowgraph import live
from shadowgraph.ops import attaching
from shadowgraph.ops.name_index import NameIndex
from shadowgraph.ops.selection import Selection, function_rule, module_rule
from tests.support.attached import Running
from tests.support.live import send, until
from tests.support.manners import program

NAMES = [
    ["alpha"],
    ["alphabet", "beta"],
    ["al", "al*", "al[x]"],
    ["N::f(int)", "N::f", "_ZN1N1fEi"],
    ["gamma\U0010ffff"],
    ["\udcff\udcfe"],
    ["sub_4010"],
    ["al\n"],
]


@pytest.mark.parametrize(
    "first", ["*", "al*", "alpha", "al[x]", "al?ha*", "re:^al", "re:a$", "N::*", "m!al*", "other!*", "\udcff*"]
)
@pytest.mark.parametrize("then", ["", "al*", "beta", "sub_4010", "re:.", "m!alpha", "other!alpha", "gamma*"])
@pytest.mark.parametrize("default", [False, True])
def test_it_chooses_what_looking_at_each_function_chooses(first: str, then: str, default: bool) -> None:
    rules = [function_rule(first, include=True), *([function_rule(then, include=False)] if then else [])]
    one, other = Selection([*rules, module_rule("none")]), Selection([*rules, module_rule("none")])
    index = NameIndex(len(NAMES), [(name, row) for row, names in enumerate(NAMES) for name in names])
    assert index.wanted(one, "m", default=default).tolist() == [
        other.wants("m", names, default=default) for names in NAMES
    ]
    assert one.matched == other.matched


def test_a_pattern_that_is_new_but_names_what_is_hooked_needs_no_look_at_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        first = target.register(live.Counter(["*"]))
        scanf = next(label for label in first.counts() if label.endswith("scanf"))
        with monkeypatch.context() as context:
            context.setattr("shadowgraph.live.hooking.prepare", None)
            by_glob = target.register(live.Counter(["gives_*", scanf]))
            by_name = target.register(live.Histogram(["gives_back"], value="arg(0)"))
            assert by_glob.place.labels.items() >= by_name.place.labels.items()
            assert scanf in by_glob.counts()
        assert attaching.prepare is not None
        send(running, range(10))
        until(lambda: by_glob.counts()["live_values!gives_back"] == 10)
        assert by_name.percentiles("gives_back")["count"] == 10
