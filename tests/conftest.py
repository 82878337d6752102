"""What all tests share: native parts that are as new as their sources."""

from __future__ import annotations

import pytest

from tests.support.native import load_build


@pytest.fixture(scope="session", autouse=True)
def _native_parts() -> None:
    assert load_build().main([]) == 0
