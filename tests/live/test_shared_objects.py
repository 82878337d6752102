"""Handlers from a shared object that needs the process's loader come and go while others wait for libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shadowgraph import live
from shadowgraph.ops.handler_source import INCLUDE
from shadowgraph.target.modules import read_modules
from tests.support.attached import Running
from tests.support.manners import program

LABEL, WAITED_FOR = "live_later!step", "libz.so.*!zlibVersion"
_SOURCE = """
#include <shadowgraph/ops.h>
#include <stdlib.h>
#include <string.h>
static char *kept;
__attribute__((constructor)) static void begin(void) { kept = strdup("twelve bytes"); }
__attribute__((destructor)) static void end(void) { free(kept); }
int on_entry(struct sg_call *call)
{
    int64_t length = (int64_t)strlen(kept);
    sg_emit(call, &length, sizeof length);
    return 0;
}
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    source, made = tmp_path / "handlers.c", tmp_path / "libhandlers.so"
    source.write_text(_SOURCE)
    command = ["gcc", "-O2", "-shared", "-fPIC", f"-I{INCLUDE}", "-o", str(made), str(source)]
    subprocess.run(command, check=True)
    return made


@pytest.mark.parametrize("waiting", [False, True])
def test_an_object_that_needs_the_loader_comes_and_goes_beside_who_waits_for_libraries(
    waiting: bool, library: Path
) -> None:
    with Running([program("live_later")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter([LABEL, *([WAITED_FOR] if waiting else [])]))
        user = live.Ops([LABEL], path=str(library), entry="on_entry", events=[("length", "i8")])
        for _ in range(2):
            target.register(user)
            before = counter.counts()[LABEL]
            assert running.say("load") == "done"
            assert counter.counts()[LABEL] == before + 1
            found = [int(length) for batch in user.events(wait=lambda: False) for length in batch["length"]]
            assert (found, user.missed, user.fault) == ([12], 0, "")
            user.unregister()
            assert not any("libhandlers" in module.path for module in read_modules(running.pid))
        assert running.say("unload") == "done"
        assert running.end() == ["OK"]
