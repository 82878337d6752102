"""Programs that run while users come and go: they are asked on their input, and answer in lines of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from _calls import SHADOWGRAPH
from _programs import ROOT

sys.path.insert(0, str(ROOT / "src"))

from shadowgraph import live

__all__ = ["Recording", "Served"]

_LEAF = "traced_leaf"
_ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}
_START_SECONDS = 30.0


class Served:
    """A program, from its start to the end of the context."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def ask(self, *words: object) -> dict[str, Any]:
        """Its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


class Recording:
    """`record --pid` of the leaf, beside this controller's users: on as long as the context is."""

    def __init__(self, pid: int, target: live.Target, folder: Path) -> None:
        self._target, self._folder = target, folder
        command = [*SHADOWGRAPH, "record", "--quiet", "--force", "--output", str(folder / "trace.sgt")]
        command += ["--function", _LEAF, "--on-full", "block", "--pid", str(pid)]
        self._command = command

    def _recorders(self) -> int:
        return sum(user["kind"] == "recorder" and user["state"] == "on" for user in self._target.users)

    def __enter__(self) -> None:
        self._folder.mkdir(exist_ok=True)
        before = self._recorders()
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True, env=_ENVIRONMENT)
        deadline = time.monotonic() + _START_SECONDS
        while self._recorders() == before:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the recording does not begin: {self._end()}")
            time.sleep(0.01)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        complaint = self._end()
        if self._process.returncode:
            raise RuntimeError(f"the recording failed: {complaint}")

    def _end(self) -> str:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return self._process.communicate()[1].strip()
