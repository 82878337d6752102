"""Records a program with settings of the agent that the command line does not offer: small pools, tables and rings.

As a program: ``python -m tests.support.small_recorder SETTINGS TRACE COMMAND...`` with SETTINGS as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.build import scratch_folder
from tests.support.counts import Counts, read_counts
from tests.support.manners import Ended, usual_environment

__all__ = ["record_small"]

ROOT = Path(__file__).resolve().parents[2]


def record_small(
    command: Sequence[str], *, rules: Sequence[str] = (), timeout: float = 120, **settings: Any
) -> tuple[Ended, Counts]:
    """Record a command; ``rules`` are patterns of functions, ``settings`` those of agent.inject.Settings."""
    trace = Path(tempfile.mkdtemp(prefix="small-", dir=scratch_folder())) / "run.sgt"
    environment = usual_environment() | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    order = json.dumps({"rules": list(rules), "settings": settings})
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.small_recorder", order, str(trace), *command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout,
    )
    return Ended(done.stdout, done.stderr, done.returncode), read_counts(trace)


def _main(order: dict[str, Any], trace: str, *command: str) -> int:
    from shadowgraph.agent.inject import Settings
    from shadowgraph.ops.recording import Recording
    from shadowgraph.ops.selection import LibraryCalls, Selection, function_rule
    from shadowgraph.trace.convert import convert
    from shadowgraph.trace.folder import SPOOL, create_folder
    from shadowgraph.trace.spool_writer import SpoolWriter

    folder = create_folder(trace, {"program": command[0]})
    spool = SpoolWriter(folder / SPOOL)
    rules = [function_rule(rule, include=True) for rule in order["rules"]]
    recording = Recording(
        spool, Selection(rules, libcalls=LibraryCalls.NONE), Settings(**order["settings"]), follow=False
    )
    result = recording.run(command[0], command)
    spool.close()
    convert(folder)
    return (
        128 + os.WTERMSIG(result.status) if os.WIFSIGNALED(result.status) else os.waitstatus_to_exitcode(result.status)
    )


if __name__ == "__main__":
    sys.exit(_main(json.loads(sys.argv[1]), *sys.argv[2:]))
