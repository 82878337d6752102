"""A program that is recorded inherits and finds what it would have without a recorder: files, signals, limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.manners import prepared, program, recorder, run, usual_environment
from tests.support.terminal import OnTerminal

SETUPS = {
    "nothing special": "",
    "stdin closed": "exec <&-",
    "stderr closed": "exec 2>&-",
    "other files open": "exec 7</dev/null 9>>/dev/zero",
    "umask": "umask 027",
    "limits": "ulimit -c 0; ulimit -s 16384; ulimit -n 64; ulimit -p 20000; ulimit -St 500",
    "nice": "renice -n 5 $$ >/dev/null",
    "no new privileges": 'set -- setpriv --no-new-privs "$@"',
    "fewer capabilities": 'set -- setpriv --bounding-set -net_raw --inh-caps +chown "$@"',
    "another user and group": 'set -- setpriv --regid 12 --groups 3,12 "$@"',
    "no address randomisation": 'set -- setarch -R "$@"',
    "one processor": 'set -- taskset -c 0 "$@"',
    "real time policy": 'set -- chrt --batch 0 "$@"',
    "a session of its own": 'set -- setsid --wait "$@"',
    **{
        f"{name} ignored": f"trap '' {name}"
        for name in ("HUP", "INT", "QUIT", "TRAP", "PIPE", "CHLD", "XFSZ", "TERM", "TSTP", "USR1", "WINCH")
    },
    "PIPE and TRAP ignored": "trap '' PIPE TRAP",
    **{f"{name} blocked": f'set -- env --block-signal={name} "$@"' for name in ("INT", "TRAP", "CHLD", "TERM", "USR1")},
    "TRAP ignored and blocked": 'set -- env --ignore-signal=TRAP --block-signal=TRAP "$@"',
    "all signals blocked": 'set -- env --block-signal "$@"',
}

ARGUMENTS = ["", "two words", "-o", "--", "line\nbreak", "\udcff\udc80 not UTF-8", "\u00e4\u20ac"]


def both(setup: str, *arguments: str, environment: dict[str, str] | None = None) -> tuple[list[str], list[str]]:
    command = [program("manners_state"), *arguments]
    plain = run(prepared(setup, command), environment=environment)
    traced = run(prepared(setup, [*recorder(), *command]), environment=environment)
    assert (plain.errors, plain.status) == ("", 0)
    assert (traced.errors, traced.status) == ("", 0)
    return plain.lines, traced.lines


@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_a_program_finds_itself_in_the_same_state(setup: str) -> None:
    plain, traced = both(setup)
    assert len(plain) > 100
    assert [in_a_group_of_the_recorder(line) for line in traced] == [in_a_group_of_the_recorder(line) for line in plain]


def test_arguments_arrive_as_they_were_given() -> None:
    plain, traced = both("", *ARGUMENTS)
    assert traced == plain


@pytest.mark.parametrize(
    "locale",
    [{}, {"LC_ALL": "C"}, {"LANG": "C"}, {"LC_CTYPE": "POSIX"}, {"LC_CTYPE": "C.UTF-8"}, {"LC_ALL": "C.UTF-8"}],
)
def test_no_variable_is_added_or_changed_in_any_locale(locale: dict[str, str]) -> None:
    environment = {name: value for name, value in usual_environment().items() if name != "LANG"} | locale
    plain, traced = both("", *ARGUMENTS, environment=environment)
    assert [line for line in plain if line.startswith("environment LC_")] == [
        f"environment {name}={value}" for name, value in locale.items() if name.startswith("LC_")
    ]
    assert traced == plain


def test_an_environment_with_entries_that_are_no_assignments_or_come_twice_is_left_as_it_is() -> None:
    strange = ["A=1", "A=2", "NO_ASSIGNMENT", "=nameless", "EMPTY=", "B=\udcff", "PATH=/usr/bin:/bin"]
    command = [program("manners_state")]
    strange += [f"{name}={value}" for name, value in usual_environment().items() if name != "PATH"]
    starter = [program("manners_environment"), *strange, "--"]
    plain, traced = run([*starter, *command]), run([*starter, *recorder(), *command])
    assert [line.removeprefix("environment ") for line in plain.lines if line.startswith("environment ")] == strange
    assert traced.lines == plain.lines


def test_a_program_in_a_folder_that_is_gone_is_there_too(tmp_path: Path) -> None:
    setup = f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone"
    plain, traced = both(setup)
    assert traced == plain


def test_a_program_has_the_terminal_that_it_would_have(tmp_path: Path) -> None:
    command = [program("manners_state")]
    plain, traced = on_terminal(command), on_terminal([*recorder(trace=tmp_path / "t.sgt"), *command])
    assert "terminal 1, foreground 1, group of the parent 0, session of the parent 0" in plain
    assert [in_a_group_of_the_recorder(line) for line in traced] == [in_a_group_of_the_recorder(line) for line in plain]


def in_a_group_of_the_recorder(line: str) -> str:
    """The recorder stands between a program and its parent, in the program's group and session."""
    return line.replace("parent 1", "parent 0")


def on_terminal(command: list[str]) -> list[str]:
    """What a command prints as the leader of a session with a terminal of its own."""
    with OnTerminal(command) as terminal:
        assert terminal.status() == 0, terminal.shown
        lines = terminal.shown.splitlines()
    assert len([line for line in lines if line.startswith("file ")]) == 3  # the terminal, by a name that differs
    return [line for line in lines if not line.startswith("file ")]
