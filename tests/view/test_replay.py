"""replay shows the function graph as the kernel's tracer lays it out."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from shadowgraph.agent import layout
from shadowgraph.trace import call_writer
from shadowgraph.trace.convert import convert
from shadowgraph.trace.folder import SPOOL, create_folder
from shadowgraph.trace.spool_writer import SpoolWriter
from tests.support.commands import run
from tests.support.synthetic import Call, Recording, raw_record, simulate_calls


def replay(recording: Recording, folder: Path, *options: str) -> list[str]:
    recording.write(folder)
    convert(folder)
    return run("replay", folder, *options).lines


def body(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("#")]


def test_layout_marks_leaves_and_nesting(tmp_path: Path) -> None:
    calls = [
        Call(0, 0, 2_000_000_000, 1),
        Call(10, 1, 999, 2),
        Call(2_000, 1, 10_000, 2),
        Call(20_000, 1, 10_001, 2),
        Call(100_000, 1, 100_001, 3),
        Call(100_010, 2, 5, 2),
        Call(1_000_000, 1, 1_000_001, 2),
        Call(10_000_000, 1, 10_000_001, 2),
        Call(100_000_000, 1, 100_000_001, 2),
    ]
    names = {1: "main", 2: "leaf", 3: "branch"}
    assert replay(Recording({0: calls}, functions=names), tmp_path / "a.sgt") == [
        "# tracer: function_graph",
        "#",
        "#    TID      DURATION                  FUNCTION CALLS",
        "#     |        |   |                     |   |   |   |",
        "    200)               |  main() {",
        "    200)   0.999 us    |    leaf();",
        "    200)   10.000 us   |    leaf();",
        "    200) + 10.001 us   |    leaf();",
        "    200)               |    branch() {",
        "    200)   0.005 us    |      leaf();",
        "    200) ! 100.001 us  |    } /* branch */",
        "    200) # 1000.00 us  |    leaf();",
        "    200) * 10000.0 us  |    leaf();",
        "    200) @ 100000 us   |    leaf();",
        "    200) $ 2000000 us  |  } /* main */",
    ]


def test_task_switches_between_threads(tmp_path: Path) -> None:
    threads = {0: [Call(0, 0, 100, 1), Call(50, 1, 10, 2)], 1: [Call(20, 0, 10, 3)]}
    names = {0: "main", 1: "worker"}
    lines = replay(Recording(dict(threads), thread_names=names), tmp_path / "a.sgt")
    assert body(lines) == [
        "    200)               |  f1() {",
        " ------------------------------------------",
        "  main-200  =>  worker-201",
        " ------------------------------------------",
        "",
        "    201)   0.010 us    |  f3();",
        " ------------------------------------------",
        "  worker-201  =>  main-200",
        " ------------------------------------------",
        "",
        "    200)   0.010 us    |    f2();",
        "    200)   0.100 us    |  } /* f1 */",
    ]
    without = run("replay", tmp_path / "a.sgt", "--no-switches").lines
    assert body(without) == [line for line in body(lines) if ")" in line]


def test_open_unwound_and_tail_calls_are_marked(tmp_path: Path) -> None:
    calls = [
        Call(100, 1, 200, 2, layout.KIND_UNWOUND),
        Call(110, 2, 50, 3, layout.KIND_UNWOUND),
        Call(400, 1, 10, 4, layout.KIND_TAIL),
    ]
    recording = Recording({0: calls}, open_calls={0: [Call(0, 0, 0, 1), Call(500, 1, 0, 5)]}, end=1000)
    assert body(replay(recording, tmp_path / "a.sgt")) == [
        "    200)               |  f1() {",
        "    200)               |    f2() {",
        "    200)   0.050 us    |      f3(); /* (unwound) */",
        "    200)   0.200 us    |    } /* f2 (unwound) */",
        "    200)   0.010 us    |    f4(); /* (tail call) */",
        "    200)   0.500 us    |    f5(); /* (open) */",
        "    200)   1.000 us    |  } /* f1 (open) */",
    ]


def test_arguments_results_libraries_and_mangled_names(tmp_path: Path) -> None:
    folder = create_folder(tmp_path / "a.sgt", {"program": "/bin/app"})
    writer = SpoolWriter(folder / SPOOL)
    writer.append("modules", [{"module": 0, "path": "/bin/app"}, {"module": 1, "path": "/lib/libc.so.6"}])
    writer.append(
        "functions",
        {"id": [1, 2], "name": ["_Z4workPKci", "malloc"], "module": [0, 1], "address": [1, 2], "size": [1, 1],
         "file": ["work.cc", None], "line": [12, None]},
    )  # fmt: skip
    sides = {"arguments": [{"type": "u64", "name": "n"}], "results": [{"type": "i32"}]}
    writer.append("values", [{"function": 1, **sides}, {"function": 2, **sides}])
    value = (7).to_bytes(8, "little") + (3).to_bytes(8, "little")
    writer.append_records(0, raw_record(Call(10, 1, 5, 2), value) + raw_record(Call(0, 0, 50, 1), value))
    writer.close()
    convert(folder)
    assert body(run("replay", folder).lines) == [
        "      0)               |  work(char const*, int)(n=7) {",
        "      0)   0.005 us    |    malloc [libc.so.6](n=7); /* = 3 */",
        "      0)   0.050 us    |  } /* work(char const*, int) = 3 */",
    ]
    raw = body(run("replay", folder, "--raw-names", "--lines").lines)
    assert raw[0] == "      0)               |  _Z4workPKci(n=7) { /* work.cc:12 */"
    assert raw[2] == "      0)   0.050 us    |  } /* _Z4workPKci = 3 */"


def test_depth_and_time_cut_what_is_shown(tmp_path: Path) -> None:
    calls = [Call(0, 0, 1000, 1), Call(100, 1, 300, 2), Call(150, 2, 100, 3), Call(500, 1, 100, 4)]
    lines = replay(Recording({0: calls}), tmp_path / "a.sgt", "--depth", "2")
    assert [line[26:] for line in body(lines)] == ["f1() {", "  f2();", "  f4();", "} /* f1 */"]
    window = body(run("replay", tmp_path / "a.sgt", "--time", "200ns-550ns").lines)
    assert [line[26:] for line in window] == ["    } /* f3 */", "  } /* f2 */", "  f4();"]
    assert body(run("replay", tmp_path / "a.sgt", "--time", "2us-").lines) == []
    assert len(body(run("replay", tmp_path / "a.sgt", "--time", "-200ns").lines)) == 3


def test_in_the_middle_of_a_call_it_says_what_was_in_flight(tmp_path: Path) -> None:
    calls = [Call(100, 0, 900, 1), Call(200, 1, 300, 2), Call(210, 2, 5, 3), Call(600, 1, 50, 3)]
    recording = Recording({0: calls, 1: [Call(50, 0, 1900, 2)]}, functions={1: "main", 2: "waits", 3: "leaf"})
    replay(recording, tmp_path / "a.sgt")
    for span, threads, said in (
        ("300ns-400ns", [], "waits (thread0-200), waits (thread1-201)"),
        ("520ns-580ns", [], "main (thread0-200), waits (thread1-201)"),
        ("520ns-580ns", ["--thread", "200"], "main (thread0-200)"),
        ("1.1us-1.2us", [], "waits (thread1-201)"),
    ):
        lines = run("replay", tmp_path / "a.sgt", "--time", span, *threads).lines
        assert lines[4:] == [f"# no call began or ended in this time; in flight all the while: {said}"]


def test_where_nothing_is_shown_it_says_what_there_is(tmp_path: Path) -> None:
    calls = [Call(100, 0, 900, 1), Call(200, 1, 50, 2)]
    recording = Recording({0: calls, 1: []}, functions={1: "main", 2: "leaf"})
    assert body(replay(recording, tmp_path / "a.sgt")) != []
    there = "the first call begins at 0.000000100 s, and the trace ends at 0.000002000 s"
    for span in ("2us-", "-50ns", "10s-20s"):
        lines = run("replay", tmp_path / "a.sgt", "--time", span).lines
        assert lines[4:] == [f"# nothing happened in this time: {there}"]
    lines = run("replay", tmp_path / "a.sgt", "--time", "2us-", "--thread", "200").lines
    assert lines[4:] == [f"# nothing happened in this time: {there.replace('call', 'call of this thread')}"]


def test_timestamps_are_times_that_can_be_aimed_at(tmp_path: Path) -> None:
    first = 12_345_000_000_007
    calls = [Call(7, 0, 2_000_000_000, 1), Call(1_000, 1, 999, 2), Call(1_500, 2, 10, 3), Call(first, 0, 20, 2)]
    lines = replay(Recording({0: calls}), tmp_path / "a.sgt", "--timestamps")
    assert lines[2:] == [
        "#       SECONDS        TID      DURATION                  FUNCTION CALLS",
        "#          |            |        |   |                     |   |   |   |",
        "     0.000000007      200)               |  f1() {",
        "     0.000001000      200)               |    f2() {",
        "     0.000001500      200)   0.010 us    |      f3();",
        "     0.000001999      200)   0.999 us    |    } /* f2 */",
        "     2.000000007      200) $ 2000000 us  |  } /* f1 */",
        " 12345.000000007      200)   0.020 us    |  f2();",
    ]
    plain = body(run("replay", tmp_path / "a.sgt").lines)
    assert [line[18:] for line in body(lines)] == plain
    times = [line.split()[0] for line in body(lines)]
    for at in range(len(times)):
        behind = body(run("replay", tmp_path / "a.sgt", "-t", "--time", f"{times[at]}-").lines)
        before = body(run("replay", tmp_path / "a.sgt", "-t", "--time", f"-{times[at]}").lines)
        assert [line.split()[0] for line in before] == times[:at]
        assert [line.split()[0] for line in behind] == times[at:]


def test_threads_are_chosen_by_tid_or_name(tmp_path: Path) -> None:
    recording = Recording({n: simulate_calls(n, 20) for n in range(3)}, thread_names={0: "main", 1: "io", 2: "io"})
    replay(recording, tmp_path / "a.sgt")
    for choice, tids in (("201", {"201"}), ("io", {"201", "202"}), ("io-202", {"202"}), ("main", {"200"})):
        lines = body(run("replay", tmp_path / "a.sgt", "--thread", choice, "--no-switches").lines)
        assert {line.split(")")[0].strip() for line in lines} == tids
    assert (
        "there is no thread 'cpu'; there are main-200, io-201, io-202"
        in run("replay", tmp_path / "a.sgt", "--thread", "cpu").error
    )


LINE = re.compile(r" *(\d+)\) . +(?:([\d.]+) us *)?\| {2}( *)(?:f(\d+)\(\) \{|f(\d+)\(\);|\} /\* f(\d+) \*/)$")


def events(lines: list[str]) -> list[tuple[int, int, int, str]]:
    """(tid, depth, function, what) of each line."""
    found = []
    for line in body(lines):
        match = LINE.match(line)
        assert match, line
        tid, duration, indent, entry, leaf, exit_ = match.groups()
        what = "entry" if entry else "leaf" if leaf else "exit"
        assert (duration is None) == (what == "entry")
        found.append((int(tid), len(indent) // 2, int(entry or leaf or exit_), what))
    return found


def expected_events(threads: dict[int, list[Call]]) -> list[tuple[int, int, int, str]]:
    """The slow twin: all events with their times, sorted."""
    timed = []
    for thread, calls in threads.items():
        for at, call in enumerate(calls):
            follower = calls[at + 1] if at + 1 < len(calls) else None
            leaf = follower is None or follower.start >= call.end
            timed.append((call.start, thread, at, call.depth, call.function, "leaf" if leaf else "entry"))
            if not leaf:
                timed.append((call.end, thread, 1 << 40, call.depth, call.function, "exit"))
    return [(200 + thread, depth, function, what) for _, thread, _, depth, function, what in sorted(timed)]


@pytest.mark.parametrize("group", [50, 1 << 18])
@pytest.mark.parametrize("seed", range(3))
def test_many_threads_are_merged_in_the_order_of_time(
    tmp_path: Path, seed: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_writer, "ROW_GROUP", group)
    # Times are made distinct between threads: what happens first when two things happen at once is nobody's promise.
    threads = {
        n: [
            call._replace(start=call.start * 8 + n, duration=call.duration * 8)
            for call in simulate_calls(seed * 10 + n, 150, start=500 * n)
        ]
        for n in range(6)
    }
    lines = replay(Recording(dict(threads)), tmp_path / "a.sgt", "--no-switches")
    assert events(lines) == expected_events(dict(threads))


def test_overlapping_calls_of_one_thread_end_when_they_end(tmp_path: Path) -> None:
    calls = [Call(0, 0, 100, 1), Call(10, 1, 300, 2), Call(200, 0, 50, 3), Call(210, 1, 20, 4)]
    lines = replay(Recording({0: calls}), tmp_path / "a.sgt")
    assert events(lines) == [
        (200, 0, 1, "entry"),
        (200, 1, 2, "entry"),
        (200, 0, 1, "exit"),
        (200, 0, 3, "entry"),
        (200, 1, 4, "leaf"),
        (200, 0, 3, "exit"),
        (200, 1, 2, "exit"),
    ]


def test_deep_recursion_stays_readable(tmp_path: Path) -> None:
    count = 70_000
    calls = [Call(10 * n, min(n, 65535), 20 * (count - n), 1) for n in range(count)]
    lines = body(replay(Recording({0: calls}), tmp_path / "a.sgt"))
    assert len(lines) == 2 * count - 1
    assert max(map(len, lines)) < 500


def test_what_was_lost_is_said_first(tmp_path: Path) -> None:
    recording = Recording(
        {0: simulate_calls(1, 10)}, counters=[{"thread": 0, "missed": 12, "dropped": 1, "filtered": 1000}]
    )
    lines = replay(recording, tmp_path / "a.sgt")
    assert [line.split(" ")[1:3] for line in lines[:3]] == [
        ["missed:", "12"],
        ["dropped:", "1"],
        ["filtered:", "1,000"],
    ]


def test_wrong_times_are_explained(tmp_path: Path) -> None:
    replay(Recording({0: simulate_calls(1, 10)}), tmp_path / "a.sgt")
    for text, named in (("5", "'5'"), ("-", "'-'"), ("x-2s", "'x'"), ("2s-1s", "'2s-1s'")):
        assert named in run("replay", tmp_path / "a.sgt", "--time", text).error


def test_the_example_lines_up(tmp_path: Path) -> None:
    lines = body(replay(Recording({0: simulate_calls(4, 200)}), tmp_path / "a.sgt"))
    assert {line.index("|") for line in lines} == {23}
    for before, after in pairwise(lines):
        step = (len(after[26:]) - len(after[26:].lstrip())) - (len(before[26:]) - len(before[26:].lstrip()))
        assert step in (-2, 0, 2)


def test_a_limit_is_one_of_lines_and_more_are_said_to_be_there(tmp_path: Path) -> None:
    calls = [Call(start * 10, 0, 5, 1) for start in range(30_000)]
    recording = Recording({0: calls}, functions={1: "leaf"})
    whole = replay(recording, tmp_path / "a.sgt")
    for limit in (1, 7, 3_000, 29_999):  # within the first piece and behind it
        lines = run("replay", tmp_path / "a.sgt", "--limit", str(limit)).lines
        assert lines == [*whole[: 4 + limit], f"# ... and so on (--limit {limit})"]
    for limit in (0, 30_000, 30_001):
        assert run("replay", tmp_path / "a.sgt", "--limit", str(limit)).lines == whole


def _subtrees(lines: list[str], chosen: set[str]) -> list[str]:
    """Of a replay of one thread, what belongs to calls of these functions that are below no other such call."""
    found, outer = [], -1  # how far the call is indented that all this is below
    for line in lines:
        text = line[24:]
        indent, is_exit = len(text) - len(text.lstrip()), text.lstrip().startswith("}")
        if outer < 0 and not is_exit and text.lstrip().split("(")[0] in chosen:
            outer = indent
            found.append(line[:26] + text.lstrip())
            outer = -1 if text.endswith(";") else outer
        elif outer >= 0:
            found.append(line[:26] + text[outer:])
            outer = -1 if is_exit and indent == outer else outer
    return found


@pytest.mark.parametrize("seed", range(6))
def test_of_chosen_functions_the_subtrees_are_shown(tmp_path: Path, seed: int) -> None:
    calls = simulate_calls(seed, 400)
    numbers = sorted({call.function for call in calls})
    names = {number: f"f{number}" for number in numbers}
    whole = body(replay(Recording({0: calls}, functions=names), tmp_path / "a.sgt", "--no-switches"))
    for chosen in ({numbers[0]}, {numbers[-1]}, set(numbers[1:3]), set(numbers)):
        words = [word for number in sorted(chosen) for word in ("-f", f"f{number}")]
        expected = _subtrees(whole, {f"f{number}" for number in chosen})
        assert body(run("replay", tmp_path / "a.sgt", *words).lines) == expected
        assert expected != []
        levels = body(run("replay", tmp_path / "a.sgt", *words, "--depth", "1").lines)
        assert all(not line[26:].startswith(" ") for line in levels)


def test_where_no_chosen_function_is_in_the_part_that_is_said(tmp_path: Path) -> None:
    calls = [Call(0, 0, 900, 1), Call(10, 1, 20, 2)]
    replay(Recording({0: calls}, functions={1: "main", 2: "leaf"}), tmp_path / "a.sgt")
    lines = run("replay", tmp_path / "a.sgt", "-f", "leaf", "--time", "100ns-").lines
    assert lines[4:] == ["# no call of these functions is in the part that was chosen"]
