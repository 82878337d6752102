"""Option values that make no sense are refused in one sentence with exit code 2, and nothing is started."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

from shadowgraph.cli.main import main
from shadowgraph.errors import EXIT_USAGE, UsageError
from shadowgraph.ops.values import parse_rule
from tests.support.synthetic import Recording, simulate_calls


def refused(*arguments: str | Path) -> str:
    """What a command says on stderr before it ends with 2, as the user sees it."""
    said, printed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert end.value.code == EXIT_USAGE
    assert printed.getvalue() == ""
    assert said.getvalue().startswith("shadowgraph: ")
    return said.getvalue().removeprefix("shadowgraph: ").rstrip("\n")


def test_what_is_missing_behind_an_option_is_explained_by_the_command_that_has_it() -> None:
    assert refused("record", "-f").endswith("requires an argument; see `shadowgraph record --help`")
    assert refused("--nothing").endswith("see `shadowgraph --help`")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--min-time", "-1us"], "'-1us' is not a time; write one like 250us, 1.5ms, 2s or 5m"),
        (["--min-time", "soon"], "'soon' is not a time"),
        (["--min-time", "300y"], "'300y' is not a time"),
        (["--for", "0"], "'0' is no time at all"),
        (["--for", "99999999h"], "'99999999h' is longer than 292 years"),
        (["--buffer", "much"], "'much' is not a size; write 64M or 2G"),
        (["--buffer", "-1M"], "'-1M' is not a size"),
        (["--max-size", "1X"], "'1X' is not a size"),
        (["--depth", "0"], "0 is not in the range"),
        (["--depth", "65536"], "65536 is not in the range"),
        (["--depth", "deep"], "'deep' is not a valid integer"),
        (["--on-full", "wait"], "'wait' is not one of 'block', 'drop', 'overwrite'"),
        (["--libcalls", "some"], "'some' is not one of 'direct', 'all', 'none'"),
        (["--nosuch"], "no such option '--nosuch'"),
    ],
)
def test_a_wrong_value_of_a_record_option_is_one_line(options: list[str], said: str) -> None:
    sentence = refused("record", *options, "true")
    assert said in sentence and "shadowgraph record --help" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("size", ["0", "100K", "511K", "65G", "9999T"])
def test_a_buffer_of_a_size_that_cannot_work_names_the_bounds(size: str) -> None:
    assert refused("record", "--buffer", size, "true") == "--buffer must be at least 512K and at most 64G"


@pytest.mark.parametrize("option", ["-f", "-n", "-m"])
def test_a_bad_regular_expression_is_named(option: str) -> None:
    sentence = refused("record", option, "re:(", "true")
    assert sentence.startswith("re:(: is not a regular expression: ")


@pytest.mark.parametrize(
    ("text", "mark", "said"),
    [
        ("malloc", "      ^", "the arguments, in parentheses, are missing here"),
        ("", "^", "the arguments, in parentheses, are missing here"),
        ("(u64)", "^", "the name of a function, or a pattern, is missing here"),
        ("malloc(u64", "          ^", "a closing parenthesis is missing here"),
        ("open(str path, flags) -> i32", "               ^^^^^", "'flags' is not a type"),
        ("f(i32 a b)", "  ^^^^^^^", "'i32 a b' is not a type"),
        ("f(i32) ->  int32", "           ^^^^^", "'int32' is not a type"),
        ("f(i32) i32", "      ^^^^", "only '->' and a type can follow the arguments"),
        ("f(i32) -> (u64, u6)", "                ^^", "'u6' is not a type"),
        ("f() -> (u64, u64, u64)", "        ^^^^^^^^^^^^^", "at most two results"),
    ],
)
def test_a_mistake_in_a_specification_has_a_mark_below_it(text: str, mark: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_rule(text)
    sentence, specification, below = str(raised.value).split("\n")
    assert sentence.startswith("--args: ") and said in sentence
    assert specification == "    " + text
    assert below == "    " + mark
    assert refused("record", "--args", text, "true") == str(raised.value)


def test_too_many_values_are_refused() -> None:
    assert "at most 20 values" in refused("record", "--args", f"f({', '.join(['u64'] * 21)})", "true")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recording = Recording({0: simulate_calls(1, 50)}, functions={1: "main", 2: "parse_line"}, thread_names={0: "work"})
    return recording.write(tmp_path_factory.mktemp("options") / "a.sgt")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["replay", "--time", "5"], "'5' is not a range of time; write FROM-TO, like 10ms-20ms, 1.5s- or -300us"),
        (["replay", "--time", "-"], "'-' is not a range of time"),
        (["replay", "--time", "1x-3"], "'1x' is not a time; write one like 250us, 1.5ms, 2s or 5m"),
        (["replay", "--time", "3s-1s"], "'3s-1s' ends before it begins"),
        (["replay", "--thread", "nobody"], "there is no thread 'nobody'; there are work-200"),
        (["replay", "--depth", "0"], "0 is not in the range"),
        (["report", "--sort", "size"], "'size' is not one of"),
        (["report", "--by", "day"], "'day' is not one of"),
        (["report", "--limit", "-1"], "-1 is not in the range"),
        (["report", "--json", "--csv"], "--json and --csv exclude each other"),
        (["graph", "--min", "200"], "200.0 is not in the range"),
        (["graph", "--depth", "0"], "0 is not in the range"),
    ],
)
def test_a_wrong_value_of_a_view_option_is_one_line(command: list[str], said: str, trace: Path) -> None:
    sentence = refused(*command, trace)
    assert said in sentence and "\n" not in sentence


def test_a_function_that_was_not_called_gets_the_nearest_names(trace: Path) -> None:
    assert refused("graph", trace, "parse_lines") == (
        f"{trace}: no function that was called is named 'parse_lines'; the nearest names are parse_line"
    )


def test_without_a_trace_the_views_say_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for view in ("report", "replay", "graph"):
        sentence = refused(view)
        assert "there is no trace (*.sgt) in this folder" in sentence and "shadowgraph record PROGRAM" in sentence


def test_help_and_version_need_nothing_and_succeed() -> None:
    for arguments in (["--version"], ["--help"], ["record", "--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "shadowgraph.cli.main", *arguments], capture_output=True, text=True
        )
        assert done.returncode == 0 and done.stdout and not done.stderr
