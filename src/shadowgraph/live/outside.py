"""A recording of one process in another one: `python -m shadowgraph.live.outside PID OPTIONS`.

A process that records itself would have to empty its buffers while its threads, the interpreter's lock with them, wait
for just that. So its helper (:mod:`self_helper`) starts this. It says on its standard output that it has begun, a line
of JSON, and how it went, another one; it ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shadowgraph.errors import ShadowgraphError, StartError
from shadowgraph.trace.folder import FolderError

if TYPE_CHECKING:
    from shadowgraph.ops.known_modules import KnownModules
    from shadowgraph.stack.safe_place import SafePlace

__all__ = ["Outside", "main"]

_Said = dict[str, Any]


class Outside:
    """Such a recording, seen from the helper: begun when it is made."""

    def __init__(self, pid: int, options: _Said) -> None:
        command = [sys.executable, "-m", "shadowgraph.live.outside", str(pid), json.dumps(options)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self.pid = self._process.pid
        self.begun = self._hear()

    def end(self) -> _Said:
        """Have it end, with the trace written; how it went."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._hear()

    def _hear(self) -> _Said:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        said: _Said = json.loads(line) if line else {"refused": "StartError", "text": "the recording has been killed"}
        if "begun" not in said:
            self._process.stdout.close()
            self._process.wait()
        return said


def main(arguments: list[str]) -> None:
    """Record until the standard input ends, or the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the keys are the process's own
    try:
        said = _record(int(arguments[0]), json.loads(arguments[1]))
    except FolderError as error:
        said = {"refused": "UsageError", "text": error.in_python}
    except ShadowgraphError as error:
        kind = "StartError" if isinstance(error, StartError) else "UsageError"
        said = {"refused": kind, "text": str(error)}
    except Exception:
        said = {"failed": traceback.format_exc()}
    _say(said)


def _say(said: _Said) -> None:
    print(json.dumps(said), flush=True)


def _record(pid: int, options: _Said) -> _Said:
    from shadowgraph.live.recorder import Recorder
    from shadowgraph.ops.recording import Recording
    from shadowgraph.target.limits import raise_own_limits
    from shadowgraph.trace.convert import convert
    from shadowgraph.trace.folder import SPOOL, NewTrace
    from shadowgraph.trace.spool_writer import SpoolWriter

    raise_own_limits()
    recorder = Recorder(**options)
    metadata = recorder.metadata(pid, os.readlink(f"/proc/{pid}/exe"))
    with NewTrace(recorder.path, metadata, force=recorder.force) as trace:
        spool = SpoolWriter(trace.folder / SPOOL)
        selection = replace(recorder.selection, when=recorder.when)
        recording = Recording(spool, selection, recorder.settings, follow=False, judge_of=_judge_of)
        threading.Thread(target=_stop_when_told, args=(recording,), daemon=True).start()

        def begun() -> None:
            trace.keep()
            _say({"begun": [image.process.slot for image in recording.images][:1]})

        try:
            recording.run_on(pid, None, begun)
        finally:
            spool.close()
        written = convert(trace.folder)
    return {
        "losses": {name: int(written[name]) for name in ("missed", "filtered")},
        "notes": recording.notes.sentences(),
    }


def _judge_of(pid: int, known_modules: KnownModules) -> closing[SafePlace]:
    from shadowgraph.stack.safe_place import SafePlace

    return closing(SafePlace(pid, known_modules))


def _stop_when_told(recording: Any) -> None:
    while os.read(0, 4096):
        pass
    recording.stop = True


if __name__ == "__main__":
    main(sys.argv[1:])
