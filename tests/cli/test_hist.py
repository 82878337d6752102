"""`shadowgraph hist`: what it prints."""

from __future__ import annotations

import json
import math
import struct

from tests.support.attached import Running
from tests.support.live import SHADOWGRAPH, result, send, started, wait_for_users
from tests.support.manners import Ended, program, run


def measured(numbers: list[int], *options: str) -> Ended:
    """What `hist` prints of a function that is called with these numbers."""
    with Running([program("live_values")]) as running:
        command = started("hist", str(running.pid), "-f", "gives_back", *options)
        wait_for_users(running.pid, 1)
        send(running, numbers)
        assert running.end("") == [f"gives_back {len(numbers)}", "OK"]
        output, errors = command.communicate()
        return Ended(output, errors, command.returncode)


def test_numbers_and_bars() -> None:
    ended = measured([-3, 0, 1, 1, 1, 2, 2, 9], "--value", "arg(0)")
    assert ended.status == 0 and ended.errors == ""
    assert ended.lines == [
        "gives_back",
        "  8 calls  mean 1.6  p50 1  p90 9  p99 9  max 9",
        "  -3  1  █████████████▍",
        "  -2  0",
        "  -1  0",
        "   0  1  █████████████▍",
        "   1  3  ████████████████████████████████████████",
        "   2  2  ██████████████████████████▋",
        "   …",
        "   9  1  █████████████▍",
        "",
    ]


def test_json_has_buckets_and_names_the_unit() -> None:
    with Running([program("live_values")]) as running:
        pid = str(running.pid)
        values = started("hist", pid, "-f", "gives_back", "--value", "result", "--json")
        wait_for_users(running.pid, 1)
        times = started("hist", pid, "-f", "gives_back", "-f", "main", "--json")
        wait_for_users(running.pid, 2)
        send(running, [5, 5, 7])
        assert running.end("") == ["gives_back 3", "OK"]
        found, timed = result(values), result(times)
    assert found["value"] == "result"
    assert found["functions"][0].pop("mean") == 17 / 3
    assert found["functions"] == [
        {
            **{"function": "gives_back", "module": "live_values", "count": 3},
            **{"p50": 5, "p90": 7, "p95": 7, "p99": 7, "max": 7, "buckets": [[5, 6, 2], [7, 8, 1]]},
        }
    ]
    function = timed["functions"][0]
    assert function["count"] == 3 and 0 < function["p50_ns"] <= function["max_ns"]
    assert timed["without_calls"] == 1, "main was called before"


def test_a_command_is_measured_too() -> None:
    path = program("live_threads", "o2", "-pthread")
    ended = run([*SHADOWGRAPH, "hist", "-f", "work", "-f", "step", "--sort", "name", "--limit", "1", "--", path, "20"])
    assert ended.status == 0
    assert ended.lines[:3] == ["work 20 step 40", "OK", "step"]
    assert ended.lines[3].startswith("  40 calls  mean ") and " ns  p50 " in ended.lines[3]
    assert ended.lines[-1] == "... and 1 more function (--limit 0 shows all)"


def floats(numbers: list[float], *options: str) -> Ended:
    """What `hist` prints of a function that is called with these doubles."""
    with Running([program("live_floats", "o2")]) as running:
        command = started("hist", str(running.pid), "-f", "of_double", *options)
        wait_for_users(running.pid, 1)
        bits = [struct.unpack("<Q", struct.pack("<d", number))[0] for number in numbers]
        assert running.say("\n".join([str(len(bits)), *(f"{number:x}" for number in bits)])) == "done"
        assert running.end("") == ["OK"]
        output, errors = command.communicate()
        return Ended(output, errors, command.returncode)


def test_floating_point_numbers_and_what_is_none() -> None:
    ended = floats([-1.5, 0.0, 0.25, 0.25, 1e6, math.nan, math.inf, math.inf], "--value", "farg(0)")
    assert ended.status == 0 and ended.errors == ""
    assert ended.lines == [
        "of_double",
        "  5 calls  mean 200000  p50 0.257812  p90 991520  p99 999152  max 1e+06",
        "  besides 1 NaN, 2 +infinity",
        "         -1.5 … -1.375  1  ████████████████████",
        "                     0  1  ████████████████████",
        "        0.25 … 0.28125  2  ████████████████████████████████████████",
        "      0.28125 … 983040  0",
        "  983040 … 1.04858e+06  1  ████████████████████",
        "",
    ]


def test_json_has_no_number_that_json_does_not_have() -> None:
    def refuse(text: str) -> None:
        raise AssertionError(text)

    ended = floats([1e308, 1e308, -1e-310, math.nan, -math.inf], "--value", "fresult", "--json")
    (found,) = json.loads(ended.output, parse_constant=refuse)["functions"]
    assert (found["count"], found["nan"], found["plus_infinity"], found["minus_infinity"]) == (3, 1, 0, 1)
    assert (found["mean"], found["max"], found["in_outermost"]) == ("Infinity", 1e308, 3)
    assert found["buckets"] == [[-1.125 * 2.0**-128, 0.0, 1], [1.875 * 2.0**127, "Infinity", 2]]


def test_that_quantiles_of_very_large_and_very_small_numbers_are_rough_is_said() -> None:
    ended = floats([1e39, 1e-39, -1e39, -1e-39, 0.0, 3e38, 4e-39, 1.0, math.inf], "--value", "farg(0)")
    assert ended.lines[2:4] == [
        "  besides 1 +infinity",
        "  4 of them beyond 3.2e+38 or within 3.3e-39 of zero, where quantiles are rough",
    ]
    ended = floats([0.0, 3e38, -4e-39, math.nan], "--value", "farg(0)")
    assert "rough" not in ended.output


def test_a_function_that_was_given_no_number_at_all_is_shown() -> None:
    ended = floats([math.nan], "--value", "fresult")
    assert ended.lines[2] == "  besides 1 NaN"
