"""What the tests of the command line share."""

from __future__ import annotations

import pytest

from tests.support.native import build_columns


@pytest.fixture(scope="session", autouse=True)
def _columns() -> None:
    build_columns()
