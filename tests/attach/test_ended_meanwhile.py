"""A process may end at any moment of being attached to: that is said, whatever has failed for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.build import scratch_folder
from tests.support.manners import run

# `record`, with the process killed just before or just behind one of the steps.
KILLING = """
import os, signal, sys
from shadowgraph.cli.main import main
from shadowgraph.ops import attaching, recording

home, name, first = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1) == "before"
pid = int(sys.argv[-1])
owner = {"recording": recording, "attaching": attaching}[home]
step = getattr(owner, name)


def killing(*arguments, **options):
    if first:
        os.kill(pid, signal.SIGKILL)
    result = step(*arguments, **options)
    if not first:
        os.kill(pid, signal.SIGKILL)
    return result


setattr(owner, name, killing)
main()
"""


@pytest.mark.parametrize("moment", ["before", "behind"])
@pytest.mark.parametrize("step", ["attaching.prepare", "attaching.find_agent", "attaching.load", "attaching.start"])
def test_a_process_that_ends_while_it_is_attached_to_is_said_to_have_ended(step: str, moment: str) -> None:
    folder = scratch_folder() / "ended_meanwhile.sgt"
    options = ["record", "-q", "-o", str(folder), "--pid"]
    with subprocess.Popen(["sleep", "60"]) as child:
        ended = run([sys.executable, "-c", KILLING, *step.split("."), moment, *options, str(child.pid)])
        child.kill()
    assert ended.sentence == f"process {child.pid} ended before it could be attached to"
    assert ended.status == 125
    assert not folder.exists()
