"""What all tests share: native parts that are as new as their sources."""

from __future__ import annotations

import os
import signal

import hypothesis
import pytest

from tests.support import libdw
from tests.support.native import load_build

# A machine that is busy with other work fails no test by being slow.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")


@pytest.fixture(scope="session", autouse=True)
def _usual_signals() -> None:
    """As in the foreground of a shell, whoever has started the tests: programs inherit what is ignored (nohup, &)."""
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is kept from one recording to the next is kept for the tests alone; they begin without any."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _native_parts() -> None:
    assert load_build().main([]) == 0


@pytest.fixture
def needs_libdw() -> None:
    """For tests of what is read by elfutils' libdw, which a machine may not have."""
    if not libdw.available():
        pytest.skip("libdw1 is not installed")
