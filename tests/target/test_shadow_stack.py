"""Whether a thread has a hardware shadow stack is read from what the kernel says of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shadowgraph.target.shadow_stack import has_shadow_stack, in_features


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("Name:\tx\nx86_Thread_features:\tshstk wrss \nx86_Thread_features_locked:\tshstk wrss \n", True),
        ("Name:\tx\nx86_Thread_features:\tshstk\n", True),
        ("Name:\tx\nx86_Thread_features:\t\nx86_Thread_features_locked:\tshstk wrss \n", False),
        ("Name:\tshstk\nState:\tR (running)\n", False),
        ("", False),
    ],
)
def test_the_kernel_s_words_are_understood(status: str, expected: bool) -> None:
    assert in_features(status) is expected


def test_a_process_without_one_has_none() -> None:
    if "shstk" in Path("/proc/cpuinfo").read_text():
        pytest.skip("this machine has shadow stacks")
    assert not has_shadow_stack(os.getpid())
