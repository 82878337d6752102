"""LTTng-UST: functions compiled with -finstrument-functions, its library for that preloaded."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _calls import Figures, Load, run
from _programs import PROFILE, build_calls

from _peers.peer import SHAPES, Measured, NotInstalled, folder_size, needs

__all__ = ["measure"]

LIBRARY = "liblttng-ust-cyg-profile-fast.so"
EVENTS_A_CALL = 2


def measure(folder: Path, rounds: int, calls: int) -> Measured:
    """A session daemon of our own, 8 sub-buffers of 1 MiB a processor."""
    needs("lttng")
    needs("lttng-sessiond")
    if subprocess.run(["/bin/true"], env={"LD_PRELOAD": LIBRARY}, capture_output=True, text=True).stderr:
        raise NotInstalled(f"{LIBRARY} is not installed")
    program, figures, trace = build_calls(PROFILE), Figures(), folder / "lttng-trace"
    with _session(folder / "lttng-home", trace) as lttng:
        made = run([str(program), *Load(SHAPES, rounds, calls).arguments], figures, LD_PRELOAD=LIBRARY, **lttng)
        said = _lttng(lttng, "stop")
        _lttng(lttng, "destroy")
    lost = sum(int(number) for number in re.findall(r"(\d+) events? (?:were|was) discarded", said))
    return Measured(figures, made, folder_size(trace), made - lost // EVENTS_A_CALL)


@contextmanager
def _session(home: Path, trace: Path) -> Iterator[dict[str, str]]:
    """A recording session that has started; the environment in which to talk to it."""
    shutil.rmtree(home, ignore_errors=True)
    shutil.rmtree(trace, ignore_errors=True)
    home.mkdir()
    lttng, pid_file = {"LTTNG_HOME": str(home)}, home / "pid"
    command = ["lttng-sessiond", "--daemonize", "--no-kernel", "--pidfile", str(pid_file)]
    subprocess.run(command, env=os.environ | lttng, check=True, capture_output=True)
    try:
        _lttng(lttng, "create", "bench", f"--output={trace}")
        _lttng(lttng, "enable-channel", "--userspace", "--subbuf-size=1M", "--num-subbuf=8", "calls")
        _lttng(lttng, "enable-event", "--userspace", "--channel=calls", "lttng_ust_cyg_profile*")
        _lttng(lttng, "start")
        yield lttng
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
        while pid_file.exists():
            time.sleep(0.01)


def _lttng(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(["lttng", *words], env=os.environ | environment, capture_output=True, text=True)
    if done.returncode:
        raise NotInstalled(f"lttng {words[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout + done.stderr
