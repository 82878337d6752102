"""A process that writes the tables of a trace, forked before there is anything to write.

Loading pyarrow takes longer than recording a small program does: the finisher loads it on another core while the
program is prepared and runs, and is idle until it is told what to convert.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from shadowgraph.errors import ShadowgraphError, UsageError

__all__ = ["Finisher"]


class Finisher:
    """Starts at once; :meth:`finish` makes it convert a trace folder, :meth:`cancel` ends it."""

    def __init__(self, progress: Callable[[int, int], None] | None = None) -> None:
        order_read, self._order = os.pipe()
        self._answer, answer_write = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # closed when we were started
                stream.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._order)
            os.close(self._answer)
            _serve(order_read, answer_write, progress)
        os.close(order_read)
        os.close(answer_write)

    def finish(self, folder: os.PathLike[str] | str) -> dict[str, Any]:
        """Convert the spool in a folder; the manifest. Errors are those of trace.convert.convert."""
        os.write(self._order, os.fsencode(folder) + b"\n")
        with open(self._answer, "rb") as file:
            answer = file.read()
        self._answer = -1
        self.cancel()
        if not answer:
            raise UsageError(
                f"{os.fspath(folder)}: the process that writes the trace was ended; `shadowgraph report` will finish it"
            )
        content: dict[str, Any] = json.loads(answer)
        if "error" in content:
            raise UsageError(content["error"])
        manifest: dict[str, Any] = content["manifest"]
        return manifest

    def cancel(self) -> None:
        """End the process; without effect if it has ended."""
        for name in ("_order", "_answer"):
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)
        if self._pid:
            try:
                os.waitpid(self._pid, 0)
            except ChildProcessError:  # SIGCHLD is ignored: nobody waits for children
                pass
            self._pid = 0


# What pyarrow imports if it is there, and tables in files have no need of: pandas, to find out whether a list is a
# Series (a quarter of a second), and file systems behind networks, with all that these need.
_DISPENSABLE = {
    "pandas",
    *(f"pyarrow.{name}" for name in ("_azurefs", "_gcsfs", "_hdfs", "_s3fs")),
}


class _Hiding:
    """Hides modules that may be missing as well."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in _DISPENSABLE:
            raise ModuleNotFoundError(name)


def _serve(order: int, answer: int, progress: Callable[[int, int], None] | None) -> NoReturn:
    """The forked process: load, wait for the order, convert, answer. Never returns."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # ends the program or the recording, not the writing
        sys.meta_path.insert(0, _Hiding())
        from shadowgraph.trace.convert import convert, prepare

        prepare()
        with open(order, "rb") as file:
            folder = file.readline().rstrip(b"\n")
        if folder:
            try:
                content: dict[str, Any] = {"manifest": convert(os.fsdecode(folder), progress)}
            except ShadowgraphError as error:
                content = {"error": str(error)}
            os.write(answer, json.dumps(content).encode())
        status = 0
    except (KeyboardInterrupt, BrokenPipeError):
        pass  # the recorder has been ended in the meantime: nobody wants to know
    except Exception:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)
