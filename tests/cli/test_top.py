"""`shadowgraph top`: tables on a pipe, and a screen with keys on a terminal that is given back as it was."""

from __future__ import annotations

import fcntl
import shlex
import struct
import termios
from pathlib import Path

import pytest

from tests.attach.conftest import built
from tests.support.attached import Running, Seen
from tests.support.live import SHADOWGRAPH, until
from tests.support.manners import run
from tests.support.terminal import CTRL_C, OnTerminal

CTRL_Z = b"\x1a"
OFTEN = ("--interval", "100ms")
BEGIN, END = "\033[?1049h", "\033[?1049l"


def top(pid: int, *options: str) -> list[str]:
    """A shell that runs `top` and then says how it ended and what the terminal is like."""
    command = " ".join([*SHADOWGRAPH, "top", *options, str(pid)])
    return ["sh", "-c", f"before=$(stty -g); {command}; echo status $?; [ $before = $(stty -g) ] && echo as before"]


def test_on_a_pipe_one_table_follows_the_other() -> None:
    path = built("attach_busy")
    with Running([path, "2"]) as running:
        before = Seen.of(running.pid, path)
        words = ["top", str(running.pid), "--iterations", "2", "--interval", "300ms", "--sort", "mean", "--limit", "3"]
        ended = run([*SHADOWGRAPH, *words])
        assert ended.status == 0
        (said,) = ended.errors.splitlines()
        assert said.endswith(f"it is _start (shadowgraph functions --refused {path})")
        first, second = ended.output.split("\n\n")
        for table in (first, second):
            title, *rows = table.splitlines()
            assert title.split() == ["Calls", "Calls/s", "Mean▼", "Max", "Time/s", "Function"]
            assert len(rows) == 5
            assert rows[0].endswith("middle"), "it calls most of the others"
            assert rows[3].startswith("... and ") and rows[4].endswith(" functions without a call")
        counts = [int(table.splitlines()[1].split()[0].replace(",", "")) for table in (first, second)]
        assert 0 < counts[0] < counts[1]
        assert Seen.of(running.pid, path).code == before.code
        assert running.end() == ["wrong 0 worked 1"]


def test_where_nothing_chosen_is_called_it_says_which_library_to_look_at_and_how() -> None:
    command = ["/usr/bin/env", "sleep", "1000"]
    with Running(["sh", "-c", f"echo ready; exec {' '.join(command)}"]) as running:
        until(lambda: Path(f"/proc/{running.pid}/exe").resolve().name == "sleep")
        ended = run([*SHADOWGRAPH, "top", str(running.pid), "--iterations", "1", "--interval", "100ms"])
        assert ended.status == 0
        words = f"shadowgraph top {running.pid} -f 'libc.so.6!*'"
        assert ended.output.splitlines()[-1] == f"(most code of its libraries is in libc.so.6: {words})"
        again = run([*SHADOWGRAPH, *shlex.split(words)[1:], "--iterations", "1", "--interval", "100ms"])
        assert again.status == 0
        assert all("could not be hooked" in line for line in again.errors.splitlines())


def test_the_end_of_the_process_ends_it() -> None:
    with (
        Running([built("attach_busy"), "1"]) as running,
        OnTerminal(top(running.pid, "--interval", "100ms")) as terminal,
    ):
        terminal.wait_for("leaf")
        assert running.end() == ["wrong 0 worked 1"]
        assert terminal.status() == 0
        assert f"process {running.pid} has ended" in terminal.shown.split(END)[1]
        assert "status 0\r\nas before" in terminal.shown


@pytest.mark.parametrize(("keys", "status"), [(b"q", 0), (CTRL_C, 0)])
def test_the_terminal_is_given_back(keys: bytes, status: int) -> None:
    path = built("attach_busy")
    with Running([path, "1"]) as running:
        before = Seen.of(running.pid, path)
        with OnTerminal(["sh", "-c", "trap : INT; " + top(running.pid, "--interval", "100ms")[2]]) as terminal:
            terminal.wait_for(BEGIN)
            terminal.wait_for("leaf")
            terminal.press(keys)
            assert terminal.status() == 0
            assert terminal.shown.count(BEGIN) == terminal.shown.count(END) == 1
            assert f"status {status}\r\nas before" in terminal.shown.split(END)[1]
        assert Seen.of(running.pid, path).code == before.code
        assert running.end() == ["wrong 0 worked 1"]


def test_keys_sort_and_filter() -> None:
    with (
        Running([built("attach_busy"), "1"]) as running,
        OnTerminal(top(running.pid, "--interval", "100ms")) as terminal,
    ):
        terminal.wait_for("Calls/s▼")
        for key, title in ((b"l", "Mean▼"), (b"m", "Max▼"), (b"c", "Calls▼"), (b"t", "Time/s▼"), (b"r", "Calls/s▼")):
            terminal.press(key)
            terminal.wait_for(title)
        terminal.press(b"/REcx\x7f")
        terminal.wait_for("filter: REc█")
        terminal.press(b"\n")
        terminal.wait_for("filter: REc    / change")
        shown = len(terminal.shown)
        terminal.wait_for("filter: REc    / change")
        drawn = terminal.shown[shown:]
        assert "recurse" in drawn and "leaf" not in drawn
        terminal.press(b"\033")
        terminal.wait_for("sort by: ")
        terminal.press(b"/leaf")
        terminal.wait_for("filter: leaf█")
        terminal.press(b"\033")
        terminal.wait_for("sort by: ")
        terminal.press(b"q")
        assert terminal.status() == 0


def test_a_window_that_changes_its_size_is_filled_anew() -> None:
    with Running([built("attach_busy"), "1"]) as running, OnTerminal(top(running.pid, "--interval", "1m")) as terminal:
        terminal.wait_for("sort by: ")  # the next table would come in a minute
        resize(terminal, 50, 7)
        terminal.wait_for("\r\nsort by: c calls  r calls/s  l latency (mean)  m max \033[K"[:40])
        last = terminal.shown.rpartition("\033[H")[2]
        assert last.count("\r\n") <= 6
        assert all(len(line.replace("\033[K", "").replace("\033[1m", "")) <= 60 for line in last.split("\r\n"))
        terminal.press(b"q")
        assert terminal.status() == 0


def resize(terminal: OnTerminal, columns: int, lines: int) -> None:
    """Give the terminal another size: who is in the foreground is told (SIGWINCH)."""
    fcntl.ioctl(terminal._terminal, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on() -> None:
    path = built("attach_busy")
    with Running([path, "1"]) as running:
        before = Seen.of(running.pid, path)
        command = " ".join([*SHADOWGRAPH, "top", *OFTEN, str(running.pid)])
        # With job control the shell goes on when its job stops, in a terminal that must be as it was.
        script = f"before=$(stty -g); {command}; [ $before = $(stty -g) ] && echo stopped as before; fg; echo status $?"
        with OnTerminal(["sh", "-mc", script]) as terminal:
            terminal.wait_for("leaf")
            terminal.press(CTRL_Z)
            terminal.wait_for("stopped as before")
            terminal.wait_for("leaf")
            terminal.press(b"q")
            assert terminal.status() == 0
            assert "status 0" in terminal.shown
            assert terminal.shown.count(BEGIN) == terminal.shown.count(END) == 2
        assert Seen.of(running.pid, path).code == before.code
        assert running.end() == ["wrong 0 worked 1"]


def test_a_reader_that_leaves_ends_it_and_the_process_is_left_as_it_was() -> None:
    path = built("attach_busy")
    with Running([path, "1"]) as running:
        before = Seen.of(running.pid, path)
        command = " ".join([*SHADOWGRAPH, "top", str(running.pid), "--interval", "100ms"])
        ended = run(["sh", "-c", f"{command} | head -n 1"])
        assert ended.status == 0 and ended.errors == ""
        assert Seen.of(running.pid, path).code == before.code
        assert "agent" in Path(f"/proc/{running.pid}/maps").read_text(), "it was there, and has left"
        assert running.end() == ["wrong 0 worked 1"]
