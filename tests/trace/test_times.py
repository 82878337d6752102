"""Times are read alike wherever one is written."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowgraph.cli._time import Nanoseconds, Time
from shadowgraph.cli.main import group
from shadowgraph.errors import UsageError
from shadowgraph.ops.predicate_tokens import tokens_of
from shadowgraph.trace.times import NANOSECONDS, parse_time

# Options with a metavar or a name of their own that are times, and are not read by the one parser: a range of two.
_RANGES = {("replay", "--time")}


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("10us", 10_000),
        ("10µs", 10_000),
        ("10\u03bcs", 10_000),
        ("1.5ms", 1_500_000),
        (" 2 s ", 2_000_000_000),
        ("2", 2_000_000_000),
        (".5", 500_000_000),
        ("1.s", 1_000_000_000),
        ("5m", 300_000_000_000),
        ("1h", 3_600_000_000_000),
        ("0.1ns", 0),
        ("0", 0),
    ],
)
def test_a_time(text: str, nanoseconds: int) -> None:
    assert parse_time(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1,5s", "1e3", "1 2s", "1d", "1.2.3s", "inf", "nan", "\u0661s", "9" * 400]
)
def test_what_is_no_time_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^'.*' is (not a time; write one like|longer than)") as raised:
        parse_time(text)
    assert "\n" not in str(raised.value)


@given(st.integers(0, 10**6), st.sampled_from(list(NANOSECONDS)))
def test_predicates_understand_the_same_times(number: int, unit: str) -> None:
    token = next(tokens_of(f"{number}{unit}"))
    assert token.value == parse_time(f"{number}{unit}")


def test_all_options_that_take_a_time_are_read_by_one_parser() -> None:
    found = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        for option in command.params:
            is_time = isinstance(option.type, (Time, Nanoseconds))
            words = {*option.opts, option.metavar or ""}
            if is_time or words & {"TIME", "--for", "--interval", "--every", "--min-time", "--time", "--timeout"}:
                found[name, option.opts[-1]] = is_time
    assert {where for where, is_time in found.items() if not is_time} == _RANGES
    commands = ("record", "count", "hist", "probe")
    assert {*found} >= {("record", "--min-time"), ("top", "--interval"), *((name, "--for") for name in commands)}
