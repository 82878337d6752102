"""The numbers of processes, and what people write in their place."""

from __future__ import annotations

import os
from typing import Any

import click

__all__ = ["Pid", "processes_named"]

_MOST = 5


class Pid(click.ParamType[int]):
    """The number of a process."""

    name = "pid"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """A number above 0; of a name, say which processes have it."""
        if isinstance(value, int):
            return value
        if value.isascii() and value.isdecimal() and int(value):
            return int(value)
        import shutil  # it loads much, and is needed for what is wrong

        there = processes_named(os.path.basename(value))
        if not there and shutil.which(value):
            there = "it is a program: start it, and give the number of its process"
        self.fail(f"{value!r} is not the number of a process" + (f"; {there}" if there else ""), param, ctx)


def processes_named(name: str) -> str:
    """Which processes have this name, as a part of a sentence; "" if there is none."""
    found = []
    for number in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdecimal()):
        try:
            with open(f"/proc/{number}/comm", errors="surrogateescape") as file:
                same = file.read().rstrip("\n") == name[:15]  # the kernel keeps so much (TASK_COMM_LEN)
        except OSError:
            continue
        found += [str(number)] * (same and number != os.getpid())
    if not found:
        return ""
    numbers = ", ".join(found[:_MOST]) + (", …" if len(found) > _MOST else "")
    return f"processes of this name: {numbers}"
