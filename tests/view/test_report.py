"""report tells which functions took the time, to people and to programs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from shadowgraph.agent import layout
from shadowgraph.trace.convert import convert
from shadowgraph.trace.folder import MANIFEST, SPOOL, THREADS, create_folder
from shadowgraph.trace.spool_writer import SpoolWriter
from shadowgraph.view.table import Column, lay_out
from tests.support import slow
from tests.support.commands import run
from tests.support.synthetic import Call, Recording, simulate_calls

KEYS = [
    "function", "module", "calls", "total_ns", "self_ns", "mean_ns", "min_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns",
    "open", "unwound",
]  # fmt: skip
AROUND = ["missed", "dropped", "filtered", "end", "state", "problems"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    calls = [Call(0, 0, 10_000, 1), Call(100, 1, 3_000, 2), Call(200, 2, 1_000, 3), Call(5_000, 1, 2_500, 2)]
    calls.append(Call(8_000, 1, 500, 4, layout.KIND_UNWOUND))
    recording = Recording(
        {0: calls, 1: [Call(50, 0, 700, 5)]},
        functions={1: "main", 2: "_ZN4Tree4walkEv", 3: "leaf", 4: "thrown", 5: "memcpy"},
        modules={5: "libc.so.6"},
        counters=[{"thread": 0, "missed": 3, "dropped": 2, "filtered": 1}],
        thread_names={0: "main", 1: "worker"},
    )
    path = recording.write(tmp_path / "a.sgt")
    convert(path)
    return path


TABLE = """\
Calls      Total      Self       Mean        Min        p50        p95        p99        Max  Unwound  Function
    2   5.500 us  4.500 us   2.750 us   2.500 us   2.500 us   3.000 us   3.000 us   3.000 us        0  Tree::walk()
    1  10.000 us  4.000 us  10.000 us  10.000 us  10.000 us  10.000 us  10.000 us  10.000 us        0  main
    1   1.000 us  1.000 us   1.000 us   1.000 us   1.000 us   1.000 us   1.000 us   1.000 us        0  leaf
... and 2 more functions (--limit 0 shows all)
missed: 3 calls not in here, run untraced for want of room on the shadow stack or of a way to hook them
dropped: 2 calls not in here, traced but not recorded, because the buffers were full
filtered: 1 call not in here, left out as the recording was asked to, by depth, minimal time or condition
"""


def test_the_table(folder: Path) -> None:
    assert run("report", folder, "--limit", "3").output == TABLE


def test_json_has_exactly_the_documented_keys(folder: Path) -> None:
    content = json.loads(run("report", folder, "--json").output)
    assert list(content) == ["functions", *AROUND]
    assert [content[key] for key in AROUND] == [3, 2, 1, "exited", "complete", []]
    rows = {row["function"]: row for row in content["functions"]}
    assert all(list(row) == KEYS for row in content["functions"])
    walk = rows["Tree::walk()"]
    assert [walk[key] for key in KEYS[1:]] == ["simulated", 2, 5500, 4500, 2750.0, 2500, 2500, 3000, 3000, 3000, 0, 0]
    assert rows["memcpy"]["module"] == "libc.so.6"
    assert rows["thrown"]["unwound"] == 1


def test_json_says_how_the_recording_ended_and_what_is_damaged(tmp_path: Path) -> None:
    recording = Recording(
        {0: simulate_calls(1, 50)}, counters=[{"thread": 0, "missed": 0, "dropped": 4, "filtered": 5}], finished=False
    )
    folder = create_folder(tmp_path / "a.sgt", {"program": "/bin/simulated", "on_full": "block"})
    writer = SpoolWriter(folder / SPOOL)
    recording.write_to(writer)
    for tick in (20_000, 90_000):  # at the limit, and when the program had ended
        writer.append("end", {"tick": tick, "reason": "size limit"})
    writer.close()
    convert(folder)
    (folder / THREADS).unlink()
    content = json.loads(run("report", folder, "--json").output)
    problem = "threads.parquet is missing; threads have no names, and processes are not told apart"
    assert [content[key] for key in AROUND] == [0, 4, 5, "size limit", "complete", [problem]]
    assert json.loads((folder / MANIFEST).read_text())["duration_ns"] == 20_000
    lines = run("report", folder).lines
    assert "dropped: 4 calls not in here, traced but not recorded, because the recording had stopped" in lines
    assert (
        "filtered: 5 calls not in here, left out as the recording was asked to, by depth, minimal time or condition"
        in lines
    )


def test_csv_is_the_same_as_json(folder: Path) -> None:
    rows = list(csv.DictReader(run("report", folder, "--csv").lines))
    content = json.loads(run("report", folder, "--json").output)["functions"]
    assert [{key: str(value) for key, value in row.items()} for row in content] == rows


def test_sorting_and_limits(folder: Path) -> None:
    def order(*options: str) -> list[str]:
        return [row["function"] for row in json.loads(run("report", folder, "--json", *options).output)["functions"]]

    assert order() == ["Tree::walk()", "main", "leaf", "memcpy", "thrown"]
    assert order("--sort", "total") == ["main", "Tree::walk()", "leaf", "memcpy", "thrown"]
    assert order("--sort", "calls")[0] == "Tree::walk()"
    assert order("--sort", "name") == ["Tree::walk()", "leaf", "main", "memcpy", "thrown"]
    assert order("--sort", "unwound")[0] == "thrown"
    assert order("--limit", "2") == ["Tree::walk()", "main"]
    assert "... and 3 more functions (--limit 0 shows all)" in run("report", folder, "--limit", "2").lines


def test_groupings(folder: Path) -> None:
    def rows(by: str, name: str) -> list[dict[str, object]]:
        content = json.loads(run("report", folder, "--json", "--by", by).output)
        assert list(content) == [name, *AROUND]
        return content[name]  # type: ignore[no-any-return]

    assert [(row["module"], row["calls"]) for row in rows("module", "modules")] == [("simulated", 5), ("libc.so.6", 1)]
    threads = rows("thread", "threads")
    assert [(row["name"], row["tid"], row["total_ns"]) for row in threads] == [
        ("main", 200, 10000),
        ("worker", 201, 700),
    ]
    assert [(row["pid"], row["calls"]) for row in rows("process", "processes")] == [(100, 6)]
    assert run("report", folder, "--by", "thread").lines[1].endswith("main-200")


LONG = "python3 -c '" + "\n".join(f"value_{number} = {number}" for number in range(100)) + "' last"


def test_a_long_command_line_is_one_short_line_of_the_table_and_whole_elsewhere(tmp_path: Path) -> None:
    path = Recording({0: [Call(0, 0, 100, 1)]}, command=LONG).write(tmp_path / "a.sgt")
    convert(path)
    title, line = run("report", path, "--by", "process").lines
    assert line[title.index("Process") :].startswith(r"python3 -c 'value_0 = 0\nvalue_1 = 1\n")
    assert line.endswith("value_99 = 99' last (pid 100)") and "…" in line
    assert len(line) - title.index("Process") < 120
    (row,) = json.loads(run("report", path, "--by", "process", "--json").output)["processes"]
    assert row["command"] == LONG
    (found,) = csv.DictReader(run("report", path, "--by", "process", "--csv").output.splitlines(keepends=True))
    assert found["command"] == LONG


def test_raw_names_are_those_of_the_file(folder: Path) -> None:
    assert "_ZN4Tree4walkEv" in run("report", folder, "--raw-names").output


def test_numbers_equal_the_slow_twin(tmp_path: Path) -> None:
    threads = {n: simulate_calls(n, 300) for n in range(2)}
    folder = Recording(dict(threads)).write(tmp_path / "a.sgt")
    convert(folder)
    twin = slow.profile(dict(threads))
    for row in json.loads(run("report", folder, "--json").output)["functions"]:
        expected = twin[int(row["function"][1:])]
        assert (row["calls"], row["total_ns"], row["self_ns"]) == (
            len(expected.durations), expected.total, expected.self,
        )  # fmt: skip


def test_an_empty_trace_is_an_empty_table(tmp_path: Path) -> None:
    folder = Recording({}).write(tmp_path / "a.sgt")
    convert(folder)
    assert run("report", folder).lines[1:] == ["empty: no call was recorded"]
    content = json.loads(run("report", folder, "--json").output)
    assert [content[key] for key in ("functions", *AROUND)] == [[], 0, 0, 0, "exited", "complete", []]
    assert len(run("report", folder, "--csv").lines) == 1
    assert run("graph", folder).lines[1:] == ["empty: no call was recorded"]
    assert len(run("replay", folder).lines) == 5


def test_mistakes_are_explained(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "exclude each other" in run("report", folder, "--json", "--csv").error
    assert "no such trace" in run("report", tmp_path / "b.sgt").error
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert "there is no trace" in run("report").error
    monkeypatch.chdir(tmp_path)
    assert run("report").output == run("report", folder).output


def test_a_recovered_trace_says_so(tmp_path: Path) -> None:
    recording = Recording({0: simulate_calls(1, 20)}, finished=False)
    folder = recording.write(tmp_path / "a.sgt")
    assert "recovered: the recorder did not finish" in run("report", folder).output


def test_a_narrow_terminal_does_without_some_columns_and_a_pipe_without_none() -> None:
    columns = [Column("A", ["1" * 20]), Column("B", ["2" * 20], spare=1), Column("C", ["3" * 20], spare=2)]
    name = Column("Name", ["n" * 50])
    lines, dropped = lay_out(columns, name, None)
    assert list(lines)[1] == "  ".join(["1" * 20, "2" * 20, "3" * 20, "n" * 50])
    assert dropped == []
    for width, gone in ((200, []), (91, []), (80, ["C"]), (60, ["B", "C"]), (10, ["B", "C"])):
        lines, dropped = lay_out(columns, name, width)
        assert dropped == gone
        assert all(len(line) <= max(width, 46) for line in lines)


def test_functions_are_chosen_by_name_or_pattern_and_keep_their_numbers(folder: Path) -> None:
    whole = {row["function"]: row for row in json.loads(run("report", folder, "--json").output)["functions"]}
    for patterns, names in (
        (["main"], {"main"}),
        (["*a*"], {"main", "leaf", "Tree::walk()"}),
        (["Tree::walk", "memcpy [libc.so.6]"], {"Tree::walk()", "memcpy"}),
        (["libc.so*!mem*"], {"memcpy"}),
        (["re:^(leaf|thrown)$"], {"leaf", "thrown"}),
    ):
        words = [word for pattern in patterns for word in ("-f", pattern)]
        found = json.loads(run("report", folder, "--json", *words).output)["functions"]
        assert found == [row for row in whole.values() if row["function"] in names]
        assert len(found) == len(names)
    assert len(run("report", folder, "-f", "main").lines) == 1 + 1 + 3  # a title, the line, what was lost


def test_a_function_that_was_not_called_or_is_no_line_is_refused(folder: Path) -> None:
    nobody = run("report", folder, "-f", "mein")
    assert "no function that was called is named 'mein'" in nobody.error and "main" in nobody.error
    other = run("report", folder, "-f", "main", "--by", "thread")
    assert other.error == "-f chooses functions, and a line of --by thread is none"
