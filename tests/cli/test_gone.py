"""A process that ends at any moment while a command looks at it: a sentence, not a traceback."""

from __future__ import annotations

import errno
import os

import pytest

from shadowgraph import live
from shadowgraph.cli import main as command_line
from tests.support.attached import Running
from tests.support.manners import program


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESRCH])
def test_a_process_that_has_just_ended_is_said_to_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def looks(**_: object) -> None:
        raise OSError(number, os.strerror(number), "/proc/12345/exe")

    monkeypatch.setattr(command_line.group, "main", looks)
    with pytest.raises(SystemExit) as ended:
        command_line.main(["top", "12345"])
    assert (ended.value.code, capsys.readouterr().err) == (125, "shadowgraph: process 12345 has just ended\n")


def test_what_a_process_had_loaded_can_be_asked_for_when_it_has_ended() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        target.register(live.Counter(["gives_back"]))
        assert target.largest_library
        assert running.end("") == ["gives_back 0", "OK"]
        target.wait()
        assert target.largest_library == ""
