"""`shadowgraph hist`: what it prints."""

from __future__ import annotations

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
