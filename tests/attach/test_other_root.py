"""A program that is executed in another root folder: followed where it has /proc, and else said why it is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.build import scratch_folder
from tests.support.live import SHADOWGRAPH
from tests.support.manners import program, run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")


def root_with(path: str) -> Path:
    """A new folder with a program and the libraries that it needs."""
    root = Path(tempfile.mkdtemp(prefix="root-", dir=scratch_folder()))
    shutil.copy(path, root / "program")
    for word in subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.split():
        if word.startswith("/"):
            inside = root / word.lstrip("/")
            inside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, inside)
    (root / "proc").mkdir()
    return root


def test_without_proc_it_says_what_is_needed_and_the_program_runs_as_ever() -> None:
    root = root_with(program("live_threads", "o2", "-pthread"))
    words = ["record", "--force", "-o", str(root / "other.sgt"), "--", "chroot", str(root), "/program", "10"]
    ended = run([*SHADOWGRAPH, *words])
    assert (ended.status, ended.lines) == (0, ["work 10 step 20", "OK"])
    sentence = f"has another root folder, {root}, in which there is no /proc: its loader needs that to find the agent "
    assert f"{sentence}(mount -t proc proc {root}/proc)" in ended.errors


def test_with_proc_it_is_followed() -> None:
    root = root_with(program("live_threads", "o2", "-pthread"))
    private = ["unshare", "-m", "sh", "-c", f'mount -t proc proc {root}/proc && exec "$@"', "sh"]
    if run([*private, "true"]).status:
        pytest.skip("/proc cannot be mounted here")
    trace = root / "other.sgt"
    words = ["record", "--force", "-o", str(trace), "--", "chroot", str(root), "/program", "10"]
    ended = run([*private, *SHADOWGRAPH, *words])
    assert (ended.status, ended.lines) == (0, ["work 10 step 20", "OK"])
    assert "not followed" not in ended.errors
    report = json.loads(run([*SHADOWGRAPH, "report", "--json", str(trace)]).output)
    calls = {row["function"]: row["calls"] for row in report["functions"] if row["module"] == "program"}
    assert (calls["work"], calls["step"]) == (10, 20)
