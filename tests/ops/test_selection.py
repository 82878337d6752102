"""Which functions are chosen: the last rule that matches decides, whatever a function is called by."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowgraph.errors import UsageError
from shadowgraph.ops.readable_forms import readable_forms, without_parameters
from shadowgraph.ops.selection import Rule, Selection, function_rule, module_rule, nearest_names

NAMES = ["parse_int", "parse_float", "print", "main", "p", "_Z5parsev", "a.b", "x[0]"]
MODULES = ["app", "libc.so.6", "libm.so.6", "lib!odd"]
PATTERNS = [
    "*",
    "p*",
    "parse_*",
    "parse_int",
    "main",
    "*in*",
    "?",
    "[pm]*",
    "re:^p.*t$",
    "re:parse",
    "nothing",
    "a.b",
    "a?b",
]


def matches(pattern: str, text: str) -> bool:
    """The slow and obvious twin for globs and exact names."""
    if pattern.startswith("re:"):
        return {"re:^p.*t$": text.startswith("p") and text.endswith("t"), "re:parse": "parse" in text}[pattern]
    return fnmatch.fnmatchcase(text, pattern)


@st.composite
def rules(draw: st.DrawFn) -> tuple[Rule, str, bool, str, str]:
    """A rule with what it was made of: kind, whether it includes, module pattern, function pattern."""
    kind = draw(st.sampled_from(["function", "not", "module"]))
    module = draw(st.sampled_from(["", "app", "lib*", "libc.so.*", "*"]))
    pattern = draw(st.sampled_from(PATTERNS))
    if kind == "module":
        return module_rule(module or "*"), kind, True, module or "*", "*"
    text = f"{module}!{pattern}" if module else pattern
    return function_rule(text, include=kind == "function"), kind, kind == "function", module or "*", pattern


@given(st.lists(rules(), max_size=6), st.sampled_from(NAMES), st.sampled_from(MODULES), st.booleans())
def test_the_last_matching_rule_decides(
    chosen: list[tuple[Rule, str, bool, str, str]], name: str, module: str, default: bool
) -> None:
    expected = default
    for _, _, include, module_pattern, pattern in chosen:
        if matches(module_pattern, module) and matches(pattern, name):
            expected = include
    selection = Selection([rule for rule, *_ in chosen])
    assert selection.wants(module, [name], default=default) == expected


@given(st.lists(rules(), max_size=6), st.sampled_from(MODULES))
def test_a_module_is_looked_at_if_a_rule_names_it(chosen: list[tuple[Rule, str, bool, str, str]], module: str) -> None:
    selection = Selection([rule for rule, *_ in chosen])
    named = [row for row in chosen if row[2] and (row[1] == "module" or "!" in row[0].text) and matches(row[3], module)]
    assert selection.touches(module) == bool(named)
    assert Selection(selection.rules, everything=True).touches(module)


def test_any_of_a_functions_names_is_enough() -> None:
    selection = Selection([function_rule("free", include=True)])
    assert selection.wants("libc.so.6", ["cfree", "free", "__libc_free"], default=False)
    assert not selection.wants("libc.so.6", ["cfree", "__libc_free"], default=False)


def test_what_a_rule_was_good_for_is_known() -> None:
    selection = Selection([function_rule("a", include=True), function_rule("b", include=False), module_rule("libz*")])
    selection.wants("app", ["a"], default=True)
    selection.wants("app", ["c"], default=True)
    assert selection.matched == {"a"}


def test_a_pattern_without_a_module_is_not_for_what_libraries_call() -> None:
    texts = [("malloc", True), ("libc.so.6!realloc", True), ("free", False)]
    selection = Selection([function_rule(text, include=include) for text, include in texts]).of_libraries()
    assert not selection.wants("libc.so.6", ["malloc"], default=False)
    assert selection.wants("libc.so.6", ["realloc"], default=False)
    everywhere = Selection([module_rule("libc*"), function_rule("free", include=False)]).of_libraries()
    assert everywhere.wants("libc.so.6", ["malloc"], default=False)
    assert not everywhere.wants("libc.so.6", ["free"], default=False)


def test_a_name_is_itself_even_if_it_looks_like_a_glob() -> None:
    for name in ("f[abi:cxx11](int*)", "x[0]", "a*b"):
        assert Selection([function_rule(name, include=True)]).wants("app", [name], default=False)


def test_an_exact_name_with_special_characters_of_globs_is_one() -> None:
    assert Selection([function_rule("x[0]", include=True)]).wants("app", ["x0"], default=False)
    assert Selection([function_rule("operator()", include=True)]).wants("app", ["operator()"], default=False)


@pytest.mark.parametrize("rules_given", [["-f a"], ["-f a", "-n b"], ["-m m"]])
def test_what_begins_with_an_inclusion_begins_with_nothing(rules_given: list[str]) -> None:
    assert Selection([made(text) for text in rules_given]).starts_empty


@pytest.mark.parametrize("rules_given", [[], ["-n b"], ["-n b", "-f a"]])
def test_what_begins_with_an_exclusion_begins_with_all(rules_given: list[str]) -> None:
    assert not Selection([made(text) for text in rules_given]).starts_empty


def made(text: str) -> Rule:
    option, pattern = text.split()
    return module_rule(pattern) if option == "-m" else function_rule(pattern, include=option == "-f")


@pytest.mark.parametrize("pattern", ["re:(", "re:[", "re:*", "app!re:("])
def test_a_broken_regular_expression_is_refused_in_one_sentence(pattern: str) -> None:
    with pytest.raises(UsageError, match="is not a regular expression"):
        function_rule(pattern, include=True)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("f(int)", "f"),
        ("ns::S::get(int) const", "ns::S::get"),
        ("S::operator()(int, char) const", "S::operator()"),
        ("f(void (*)(int))", "f"),
        ("std::function<int (int)>::operator()(int) const", "std::function<int (int)>::operator()"),
        ("f(int) [clone .part.0]", "f"),
        ("void f<int>(int)", "void f<int>"),
        ("plain", "plain"),
        ("core::fmt::write", "core::fmt::write"),
        ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
        ("(anonymous namespace)::value", "(anonymous namespace)::value"),
        ("ns::(anonymous namespace)::value", "ns::(anonymous namespace)::value"),
        ("S::f() &&", "S::f"),
        ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"),
        ("main::{lambda(int)#1}", "main::{lambda(int)#1}"),
        ("", ""),
        (")(", ")("),
    ],
)
def test_parameters_are_taken_off_a_readable_name(name: str, short: str) -> None:
    assert without_parameters(name) == short


@given(st.text(alphabet="()<>:a ", max_size=20))
def test_taking_off_parameters_never_fails_and_gives_a_beginning(name: str) -> None:
    assert name.startswith(without_parameters(name))


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void f<int>(int)", "f<int>"),
        ("std::vector<int, std::allocator<int> > ns::f<int>(int) const", "ns::f<int>"),
        ("unsigned long const& ns::f<int>(int) [clone .cold]", "ns::f<int>"),
        ("void (anonymous namespace)::f<int>(int)", "(anonymous namespace)::f<int>"),
        ("std::ostream& std::operator<< <char>(std::ostream&, char)", "std::operator<< <char>"),
        ("bool ns::operator><int>(int)", "ns::operator><int>"),
        ("decltype (({parm#1}->f)()) call<S>(S)", "call<S>"),
        ("std::enable_if<(2>1), int>::type f<int>()", "f<int>"),
        ("int (*ns::f<int>(int))(char)", "ns::f<int>"),
        (
            "auto f<S>(S) const::{lambda(auto)#1}::operator()<S>(S)",
            "f<S>(S) const::{lambda(auto)#1}::operator()<S>",
        ),
        ("S<int>::f() const::{lambda()#1}::operator()() const", "S<int>::f() const::{lambda()#1}::operator()"),
        ("S::operator char*<char>()", "S::operator char*<char>"),
        ("S<int>::operator unsigned int() const", "S<int>::operator unsigned int"),
        ("non-virtual thunk to S<int>::f()", "non-virtual thunk to S<int>::f"),
        ("operator new(unsigned long)", "operator new"),
        ("<a::B<fn() -> T> as c::D>::f", "<a::B<fn() -> T> as c::D>::f"),
        ("my_operator f<int>()", "f<int>"),
    ],
)
def test_a_templates_return_type_is_taken_off_a_readable_name(name: str, short: str) -> None:
    forms = readable_forms(name)
    assert forms[-1] == short
    assert forms[:2] == (name, without_parameters(name))


@given(st.text(alphabet="()<>:a *&-o", max_size=20))
def test_forms_are_parts_of_the_name_and_none_is_empty(name: str) -> None:
    assert all(form in name and (form or not name) for form in readable_forms(name))


def test_the_nearest_names_are_told() -> None:
    names = ["parse_integer", "parse_float", "main", "print"]
    assert nearest_names(["parse_integr"], names).startswith("; the nearest names are parse_integer")
    assert "parse_float" in nearest_names(["*float*"], names)
    assert nearest_names(["re:^prin$"], names).startswith("; the nearest names are ")
    assert nearest_names(["zzzzzz"], names) == ""
    assert nearest_names(["libc!zzzzzz", "*"], names) == ""
