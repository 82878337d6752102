"""graph shows the merged call tree, and the surroundings of one function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shadowgraph.trace.convert import convert
from tests.support.commands import run
from tests.support.synthetic import Call, Recording


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    calls = [
        Call(0, 0, 1000, 1), Call(10, 1, 300, 2), Call(20, 2, 50, 3), Call(100, 2, 100, 2), Call(110, 3, 40, 4),
        Call(400, 1, 200, 5), Call(410, 2, 100, 2), Call(420, 3, 30, 3), Call(700, 1, 10, 2),
    ]  # fmt: skip
    names = {1: "main", 2: "_ZN3Job3runEi", 3: "leaf", 4: "other", 5: "twice"}
    path = Recording({0: calls}, functions=names).write(tmp_path / "a.sgt")
    convert(path)
    return path


def test_the_tree(folder: Path) -> None:
    assert run("graph", folder).lines == [
        "     Total       %        Self  Calls  Function",
        "  1.000 us  100.0%      490 ns      1  main",
        "    310 ns   31.0%      160 ns      2  ├─ Job::run(int)",
        "    100 ns   10.0%       60 ns      1  │  ├─ Job::run(int)",
        "     40 ns    4.0%       40 ns      1  │  │  └─ other",
        "     50 ns    5.0%       50 ns      1  │  └─ leaf",
        "    200 ns   20.0%      100 ns      1  └─ twice",
        "    100 ns   10.0%       70 ns      1     └─ Job::run(int)",
        "     30 ns    3.0%       30 ns      1        └─ leaf",
    ]


def test_small_branches_and_deep_levels_are_left_out_and_counted(folder: Path) -> None:
    lines = run("graph", folder, "--min", "10", "--depth", "2").lines
    assert [line.split("  ")[-1].split("─ ")[-1] for line in lines[1:4]] == ["main", "Job::run(int)", "twice"]
    assert lines[4:] == ["(deeper levels are left out; --depth N shows N levels)"]
    assert "(left out: 3 branches that took less time; --min 0 shows all)" in run("graph", folder, "--min", "10").lines


def test_callers_and_callees_of_a_function(folder: Path) -> None:
    lines = run("graph", folder, "Job::run").lines
    assert lines == [
        "Who calls Job::run(int)",
        "     Total       %  Calls  Function",
        "    410 ns  100.0%      4  Job::run(int)",
        "    310 ns   75.6%      2  ├─ main",
        "    100 ns   24.4%      1  ├─ Job::run(int)",
        "    100 ns   24.4%      1  │  └─ main",
        "    100 ns   24.4%      1  └─ twice",
        "    100 ns   24.4%      1     └─ main",
        "",
        "What Job::run(int) calls",
        "     Total       %        Self  Calls  Function",
        "    410 ns  100.0%      290 ns      4  Job::run(int)",
        "    100 ns   24.4%       60 ns      1  ├─ Job::run(int)",
        "     40 ns    9.8%       40 ns      1  │  └─ other",
        "     80 ns   19.5%       80 ns      2  └─ leaf",
        "",
    ]


def test_a_function_is_found_by_any_of_its_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run("graph", folder, "Job::run").output
    monkeypatch.chdir(folder.parent)
    for name in ("Job::run(int)", "_ZN3Job3runEi", "*::run*"):
        assert run("graph", name).output == expected
    error = run("graph", "leav").error
    assert "'leav'" in error and "leaf" in error


def test_a_template_is_found_without_its_return_type(tmp_path: Path) -> None:
    names = {1: "main", 2: "_ZN5space5twiceIiEEvT_"}
    path = Recording({0: [Call(0, 0, 100, 1), Call(10, 1, 20, 2)]}, functions=names).write(tmp_path / "a.sgt")
    convert(path)
    for name in ("void space::twice<int>(int)", "space::twice<int>(int)", "space::twice<int>", "space::t*", names[2]):
        assert run("graph", path, name).lines[0] == "Who calls void space::twice<int>(int)"
        assert run("graph", "--raw-names", path, name).lines[0] == f"Who calls {names[2]}"


def test_no_share_of_a_recursive_function_is_more_than_all(tmp_path: Path) -> None:
    """Neither where it calls itself, nor where it comes back through another one."""
    depth = 40
    direct = [Call(10 * n, n, 20 * (depth - n), 1) for n in range(depth)]
    through = [Call(2000 + 10 * n, n, 20 * (depth - n), 2 + n % 2) for n in range(depth)]
    path = Recording({0: direct + through}).write(tmp_path / "a.sgt")
    convert(path)
    for arguments in ([], ["f1"], ["f2"], ["f3"], ["f[23]"]):
        shares = [float(share) for share in re.findall(r"([\d.]+)%", run("graph", path, *arguments).output)]
        assert len(shares) > 2 * depth - 10 and max(shares) == (100 if arguments else 50)


@pytest.fixture
def two_modules(tmp_path: Path) -> Path:
    calls = [Call(0, 0, 100, 1), Call(10, 1, 20, 2), Call(40, 1, 10, 3), Call(60, 1, 10, 4)]
    names = {1: "main", 2: "open", 3: "open", 4: "opens"}
    modules = {2: "libc.so.6", 3: "libother.so", 4: "libc.so.6"}
    path = Recording({0: calls}, functions=names, modules=modules).write(tmp_path / "a.sgt")
    convert(path)
    return path


@pytest.mark.parametrize(
    ("text", "title", "calls"),
    [
        ("open", "open [libc.so.6], open [libother.so]", 2),
        ("open [libother.so]", "open [libother.so]", 1),
        ("libc.so.6!open", "open [libc.so.6]", 1),
        ("libc*!op*", "open [libc.so.6], opens [libc.so.6]", 2),
        ("re:^opens$", "opens [libc.so.6]", 1),
        ("main", "main", 1),
        ("simulated!main", "main", 1),
        ("main [simulated]", "main", 1),
    ],
)
def test_a_function_is_named_as_report_prints_it_or_as_record_takes_it(
    two_modules: Path, text: str, title: str, calls: int
) -> None:
    lines = run("graph", two_modules, text).lines
    assert lines[0] == f"Who calls {title}"
    assert lines[2].split()[3] == str(calls)


def test_several_functions_may_be_chosen_as_in_the_other_views(two_modules: Path, tmp_path: Path) -> None:
    both = run("graph", two_modules, "-f", "opens", "--function", "libc.so*!open").lines
    assert both == run("graph", two_modules, "libc*!op*").lines
    assert both[0] == "Who calls open [libc.so.6], opens [libc.so.6]"
    assert run("graph", two_modules, "opens", "-f", "libc.so*!open").lines == both
    assert run("graph", "-f", "main", two_modules).lines == run("graph", two_modules, "main").lines
    assert "'opne'; the nearest names are open" in run("graph", two_modules, "-f", "main", "-f", "opne").error


def test_of_many_functions_the_title_has_the_first(tmp_path: Path) -> None:
    calls = [Call(10 * number, 0, 5, number) for number in range(1, 9)]
    path = Recording({0: calls}).write(tmp_path / "a.sgt")
    convert(path)
    assert run("graph", path, "f*").lines[0] == "Who calls f1, f2, f3, f4, f5 and 3 more"


def test_what_report_prints_can_be_given_to_graph(two_modules: Path) -> None:
    for line in run("report", two_modules).lines[1:]:
        label = line.split("  ")[-1].strip()
        assert run("graph", two_modules, label).lines[0] == f"Who calls {label}"
    assert "'libx!open'; the nearest names are open" in run("graph", two_modules, "libx!open").error


def test_processes_are_trees_of_their_own(tmp_path: Path) -> None:
    threads = {0: [Call(0, 0, 100, 1)], 1: [Call(10, 0, 60, 1)], 2: [Call(5, 0, 40, 1)]}
    path = Recording(dict(threads), processes={2: 1}).write(tmp_path / "a.sgt")
    convert(path)
    assert run("graph", path).lines[1:] == [
        "    160 ns   80.0%        0 ns      2  process simulated (pid 100)",
        "    160 ns   80.0%      160 ns      2  └─ f1",
        "     40 ns   20.0%        0 ns      1  process simulated (pid 101)",
        "     40 ns   20.0%       40 ns      1  └─ f1",
    ]


def test_open_calls_and_losses_are_said(tmp_path: Path) -> None:
    recording = Recording(
        {0: [Call(10, 1, 5, 2)]},
        open_calls={0: [Call(0, 0, 0, 1)]},
        counters=[{"thread": 0, "missed": 1, "dropped": 0, "filtered": 0}],
    )
    path = recording.write(tmp_path / "a.sgt")
    convert(path)
    lines = run("graph", path).lines
    assert lines[1].endswith("f1 (1 open)")
    assert lines[-1].startswith("missed: 1 call not in here, run untraced")


def test_a_recursion_of_a_million_levels_is_not_drawn_to_its_end(tmp_path: Path) -> None:
    count = 60_000
    calls = [Call(10 * n, n, 20 * (count - n), 1) for n in range(count)]
    path = Recording({0: calls}).write(tmp_path / "a.sgt")
    convert(path)
    assert len(run("graph", path).lines) == 66
    assert len(run("graph", path, "f1").lines) < 150
