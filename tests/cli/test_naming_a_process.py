"""A process is named as the argument or with --pid, by all commands alike."""

from __future__ import annotations

import pytest

from tests.attach.conftest import built
from tests.support.attached import Running
from tests.support.live import SHADOWGRAPH
from tests.support.manners import run

HANDLER = "int on_entry(struct sg_call *call) { return 0; }"
COMMANDS = [
    ["top", "--iterations", "1", "--interval", "100ms"],
    ["count", "-f", "leaf", "--for", "100ms"],
    ["hist", "-f", "leaf", "--for", "100ms"],
    ["probe", "-f", "leaf", "--for", "100ms", "--code", HANDLER],
    ["users"],
    ["detach"],
]


def named(words: list[str]) -> str:
    """The name of a test's case."""
    return words[0]


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_the_option_says_the_same_as_the_argument(words: list[str]) -> None:
    with Running([built("attach_busy"), "1"]) as running:
        for process in ([str(running.pid)], ["--pid", str(running.pid)], ["-p", str(running.pid)]):
            ended = run([*SHADOWGRAPH, *words, *process])
            assert ended.status == 0, ended.errors
            assert "leaf" in ended.output or words[0] in ("users", "detach", "probe")
            if words[0] in ("users", "detach"):
                assert ended.output == f"nobody uses process {running.pid}\n"
        assert running.end() == ["wrong 0 worked 1"]


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_both_or_neither_is_a_mistake(words: list[str]) -> None:
    both, neither = run([*SHADOWGRAPH, *words, "1", "--pid", "1"]), run([*SHADOWGRAPH, *words])
    assert (both.status, neither.status) == (2, 2)
    assert "--pid" in both.sentence
    assert "name a process by its pid" in neither.sentence


@pytest.mark.parametrize("words", [["count"], ["hist"], ["probe", "--code", HANDLER]], ids=named)
@pytest.mark.parametrize("apart", [["--"], []])
def test_what_follows_a_program_is_its_own(words: list[str], apart: list[str]) -> None:
    for program in (["sh", "-c", 'echo "$@"', "-f", "--json", "-f"], ["echo", "--json", "--", "1"]):
        ended = run([*SHADOWGRAPH, *words, "-f", "libc.so.6!*alloc", "-o", "/dev/null", *apart, *program])
        assert (ended.status, ended.output) == (0, run(program).output), ended.errors


def test_what_follows_a_process_is_ours() -> None:
    with Running([built("attach_busy"), "1"]) as running:
        ended = run([*SHADOWGRAPH, "count", str(running.pid), "-f", "leaf", "--for", "100ms", "--json"])
        assert '"function": "leaf"' in ended.output, ended.errors
        assert running.end() == ["wrong 0 worked 1"]


def test_help_is_a_command_too() -> None:
    for words in (["help"], ["help", "top"]):
        ended = run([*SHADOWGRAPH, *words])
        assert (ended.status, ended.output) == (0, run([*SHADOWGRAPH, *words[1:], "--help"]).output)
