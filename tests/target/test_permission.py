"""Why a process may not be traced, and what to do about it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shadowgraph.errors import StartError
from shadowgraph.target import permission
from shadowgraph.target.running import vet_running


@pytest.mark.parametrize(
    ("scope", "said", "advice"),
    [
        ("0", "it has rights that we have not", "root"),
        ("1", "ptrace_scope is 1, which lets a user trace only what the tracer has started", "let shadowgraph start"),
        ("2", "ptrace_scope is 2, which lets nobody trace but who has CAP_SYS_PTRACE", "run shadowgraph as root"),
        ("3", "ptrace_scope is 3, which lets nobody trace, until the next boot", "restart the machine"),
    ],
)
def test_of_a_process_of_the_same_user_the_kernels_setting_is_named(
    scope: str, said: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr(permission, "_SCOPE", str(tmp_path / "scope"))
    sentence = permission.why_forbidden(os.getpid())
    assert said in sentence
    assert advice in sentence
    assert ("sysctl kernel.yama.ptrace_scope=0" in sentence) == (scope in "12")


def test_another_user_is_named_with_the_way_to_become_them(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getpid()
    users = {own: {"Uid": "0\t1234567\t0\t0"}, 1: {"Uid": "5\t7654321\t5\t5"}}
    monkeypatch.setattr(permission, "read_status", users.get)
    sentence = permission.why_forbidden(1)
    assert "it belongs to uid 7654321, and we are uid 1234567" in sentence
    assert "run shadowgraph as that user (sudo -u '#7654321' …) or as root" in sentence


@pytest.mark.parametrize(
    ("user", "advice"), [("1234", "run shadowgraph as root (sudo …)"), ("0", "a sandbox may forbid it even to root")]
)
def test_who_is_root_is_not_told_to_become_root(user: str, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission, "read_status", lambda pid: {"Uid": f"{user}\t{user}\t0\t0"})
    monkeypatch.setattr(permission, "_scope", lambda: 0)
    assert permission.why_forbidden(1).endswith(f"; {advice}")


def test_what_may_be_traced_is_not_forbidden() -> None:
    assert permission.may_trace(os.getpid())
    assert permission.may_trace(1 << 30)  # that there is no such process is for others to say


def test_a_process_that_names_itself_is_told_of_attach_self() -> None:
    with pytest.raises(StartError, match=r"attach_self\(\) traces the process that calls it"):
        vet_running(os.getpid())
