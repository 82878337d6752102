"""The index of names chooses what looking at each function would; a user on what is known is there at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shadowgraph import live
from shadowgraph.ops import attaching
from shadowgraph.ops.name_index import NameIndex
from shadowgraph.ops.selection import Matcher, Selection, function_rule, module_rule
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


MANY = [[f"function_{n}", f"N::method{n % 7}(int)"] for n in range(300)] + [
    ["Main"],
    ["a"],
    ["ab"],
    ["^a$"],
    ["function_[abi:cxx11]x"],
    ["\udcff_17"],
]
EXPRESSIONS = [
    *(
        "^function_17$",
        "tion_17",
        "17$",
        "^a$",
        "^^a$$",
        "a",
        "^$",
        "",
        ".",
        "x*",
        "^function_(17|18)$",
        "_1[789]$",
        "_1[0-9]9$",
    ),
    *(
        "(?i)FUNCTION_17$",
        "(?i)tion_17",
        "(?i)^(MAIN|Ab?)$",
        "(?i)[FG]unction_(29|3)$",
        "(?i)f.*(?-i:TION)_17",
        "(?i)f.*(?-i:tion)_17",
        "(?i)\u017f",  # a long s, which is equal to s
        "(?i)METHOD\u017f|N::.*3",
        "(?ai)mET.*3",
        "(?i:FUNC)tion_17$",
        "f.*_17",
        "method3|_17$",
        "(method3|main)",
        "^(N::|)method",
        "(n_1){1}7",
        "(17)+$",
    ),
    *(
        "(17)?$",
        "[^u]nction_299",
        "\\bfunction_29\\b",
        "(?=fun)function_28$",
        "(?!fun)ction_28$",
        "(?<=_)29",
        "(1)\\1$",
        "(?m)^a$",
    ),
    *(
        "\\Aab?\\Z",
        "a$|b$",
        "(a$)?b",
        "(?:^|_)17",
        "\\^a\\$",
        "(?x) function _ 1 7 $",
        "(?>fun)ction_1$",
        "_1++7",
        "(^|n)_?17",
        "$a",
    ),
]
GLOBS = [
    "function_[abi:cxx11]x",
    "*",
    "*_17",
    "*tion_1?",
    "f*_17",
    "*[12]9",
    "*_[!1]9",
    "*method3*",
    "N::*3*",
    "*\udcff*",
    "*a",
    "?",
    "function_*7",
    "*_17*tion*",
]


@pytest.mark.parametrize("pattern", [*(f"re:{expression}" for expression in EXPRESSIONS), *GLOBS])
@pytest.mark.parametrize(
    "more",
    [[], [["function_17\n"], ["a\n"], ["\na"]], [["\u017functions"], ["FUNCTION_\u212a"]], None],
    ids=["plain", "line ends", "letters equal to some of ASCII", "ASCII alone"],
)
def test_of_many_names_it_chooses_the_same(pattern: str, more: list[list[str]] | None) -> None:
    functions = MANY + more if more is not None else [names for names in MANY if all(map(str.isascii, names))]
    index = NameIndex(len(functions), [(name, row) for row, names in enumerate(functions) for name in names])
    one, other = (Selection([function_rule(pattern, include=True)]) for _ in range(2))
    assert index.wanted(one, "m", default=False).tolist() == [
        other.wants("m", names, default=False) for names in functions
    ]


@pytest.mark.parametrize(
    "pattern", ["re:^same$", "re:same", "re:e$", "re:^s", "*same", "*same*", "*am*", "*e", "re:^sa.e$"]
)
def test_names_that_many_functions_have_are_all_found(pattern: str) -> None:
    names = [["same"] for _ in range(300)] + [["game"], ["samewhat"], ["\u00e4same"]]
    index = NameIndex(len(names), [(name, row) for row, of_row in enumerate(names) for name in of_row])
    one, other = (Selection([function_rule(pattern, include=True)]) for _ in range(2))
    assert index.wanted(one, "m", default=False).tolist() == [
        other.wants("m", of_row, default=False) for of_row in names
    ]


def test_few_of_many_names_are_looked_at_one_by_one() -> None:
    names = [(name, row) for row, names in enumerate(MANY) for name in names if name.isascii()]
    index = NameIndex(len(MANY), names)
    for pattern in (
        "re:^function_17$",
        "re:tion_17",
        "*tion_17*",
        "re:^(function_17|function_18)$",
        "re:f.*_299",
        "re:function_[0-9]+99$",
        "re:(?i)^FUNCTION_17$",
        "re:(?i)TION_17",
    ):
        rule, looked = function_rule(pattern, include=True), []

        def looks(name: str, looked: list[str] = looked, matches: Matcher = rule.function) -> object:
            looked.append(name)
            return matches(name)

        assert len(index.rows_of(replace(rule, function=looks))) > 0
        assert len(looked) <= 15, pattern


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
