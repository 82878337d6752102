"""The `shadowgraph` command for runs under the call/return checker: ``python -m tests.support.checked_recorder``.

The agent's table of threads is short, since it is looked through when a program ends, and each instruction is a stop.
With `--shadow-stack` as the first argument, threads are taken for ones that have a hardware shadow stack.
"""

from __future__ import annotations

import sys
from typing import Any

from shadowgraph.agent import inject, trampolines
from shadowgraph.cli.main import main

THREADS = 16


class _FewThreads(inject.Settings):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**({"threads": THREADS} | fields))


def _has_shadow_stack(tid: int) -> bool:
    return tid > 0


if __name__ == "__main__":
    inject.Settings = _FewThreads  # type: ignore[misc]
    if sys.argv[1:2] == ["--shadow-stack"]:
        del sys.argv[1]
        trampolines.has_shadow_stack = _has_shadow_stack
    main()
