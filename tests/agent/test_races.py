"""The agent's C code under a race detector, with users that come and go and threads that begin and end (R8)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RACE = ROOT / "tests" / "support" / "race"
REPORT = "WARNING: ThreadSanitizer"
ROUNDS = os.environ.get("SHADOWGRAPH_RACE_ROUNDS", "15")


def built(folder: Path, *options: str) -> Path:
    """The agent's C files and the harness, instrumented; not the assembly, which the harness stands in for."""
    program = folder / "harness"
    sources = [RACE / "harness.c", *sorted((ROOT / "native" / "agent").glob("*.c"))]
    includes = [ROOT / "native" / "include", ROOT / "native" / "agent", ROOT / "src" / "shadowgraph" / "include"]
    command = ["gcc", "-std=gnu11", "-O1", "-g", "-fsanitize=thread", "-pthread", *options]
    command += [f"-I{include}" for include in includes]
    subprocess.run([*command, "-o", str(program), *map(str, sources)], check=True)
    return program


def run(program: Path) -> subprocess.CompletedProcess[str]:
    """Run it under the detector, which wants memory where it expects it: if need be, where the kernel puts it first."""
    command = [str(program), "8", ROUNDS]
    environment = os.environ | {"TSAN_OPTIONS": f"suppressions={RACE / 'suppressions.txt'}"}
    for prefix in ([], ["setarch", "-R"]):
        done = subprocess.run([*prefix, *command], env=environment, capture_output=True, text=True, timeout=300)
        if "unexpected memory mapping" not in done.stderr:
            break
    return done


def test_threads_and_a_controller_that_keep_to_the_protocol_have_no_races(tmp_path: Path) -> None:
    done = run(built(tmp_path))
    assert (done.stdout, REPORT in done.stderr, done.returncode) == ("OK\n", False, 0), done.stderr


@pytest.mark.parametrize("mistake", ["ROW_LAST", "NO_WAITING"])
def test_the_detector_finds_a_controller_that_does_not(tmp_path: Path, mistake: str) -> None:
    done = run(built(tmp_path, f"-D{mistake}"))
    assert REPORT in done.stderr
