"""What all tests share: native parts that are as new as their sources."""

from __future__ import annotations

import hypothesis
import pytest

from tests.support import libdw
from tests.support.native import load_build

# A machine that is busy with other work fails no test by being slow.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")


@pytest.fixture(scope="session", autouse=True)
def _native_parts() -> None:
    assert load_build().main([]) == 0


@pytest.fixture
def needs_libdw() -> None:
    """For tests of what is read by elfutils' libdw, which a machine may not have."""
    if not libdw.available():
        pytest.skip("libdw1 is not installed")
