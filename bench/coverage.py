"""How much of real programs can be hooked: one JSON line for each, with every refused function and its reason.

Usage: python bench/coverage.py [PROGRAM OR LIBRARY ...]; by default those that the project's goals name, as far as
they are installed; of those that are not, a line says so.

``hookable_of_traceable`` leaves out functions that no hook may touch whatever their code (the program's first
instruction, stack switchers, code whose runtime walks its own stack); ``untraceable`` counts them by reason.
``seconds`` is the time to plan and to encode all thunks on one core, the best of three.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from glob import glob
from pathlib import Path

import numpy as np
import numpy.typing as npt
from _lines import say_missing

from shadowgraph.image import SENTENCES, Reason, open_image, read_functions
from shadowgraph.image.reasons import PLANNER_FIRST
from shadowgraph.patch import PlanFlag, encode_thunks, plan_module

# What the goals name, and below it what other benchmarks trace; by where it may be.
PLACES = {
    "bash": ("/usr/bin/bash",),
    "perl": ("/usr/bin/perl",),
    "python3": ("/usr/bin/python3", "/usr/lib*/libpython3*.so.1.0", "/usr/lib/x86_64-linux-gnu/libpython3*.so.1.0"),
    "node": ("/usr/bin/node", "/usr/lib/x86_64-linux-gnu/libnode.so.*"),
    "sqlite3's library": ("/usr/lib/x86_64-linux-gnu/libsqlite3.so.0", "/usr/lib*/libsqlite3.so.0"),
    "gcc's cc1": ("/usr/lib*/gcc/x86_64-*linux*/*/cc1",),
    "sqlite3": ("/usr/bin/sqlite3",),
    "libc": ("/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib*/libc.so.6"),
}


def programs() -> dict[str, list[Path]]:
    """The files of each, none where it is not installed. Where the code of a program is in a library, that is one."""
    found = {}
    for name, places in PLACES.items():
        paths = [Path(path) for place in places for path in sorted(glob(place))]
        paths += [Path(path) for path in [shutil.which(name)] if path]
        elf = [path.resolve() for path in paths if path.read_bytes()[:4] == b"\x7fELF"]
        found[name] = list(dict.fromkeys(elf))
    return found


def measure(path: Path) -> dict[str, object]:
    """One line of the answer."""
    image = open_image(path)
    functions = read_functions(image)
    plans, encodes = [], []
    for _ in range(3):
        start = time.process_time()
        plan = plan_module(image, functions)
        plans.append(time.process_time() - start)
        rows = np.flatnonzero(plan.hookable)
        start = time.process_time()
        base = max(segment.end for segment in image.segments) + (1 << 24) & -4096
        encode_thunks(plan, rows, 0, base, base + (1 << 26), rows, base + (1 << 27))
        encodes.append(time.process_time() - start)
    real = plan.reason != Reason.COLD_PART
    refused = np.flatnonzero(~plan.hookable & real)
    untouchable = np.flatnonzero((plan.reason > 0) & (plan.reason < PLANNER_FIRST) & real)
    total, hookable = int(real.sum()), int(plan.hookable.sum())
    return {
        "program": str(path),
        "functions": total,
        "hookable": hookable,
        "percent": round(100 * hookable / total, 4),
        "hookable_of_traceable": round(100 * hookable / max(total - len(untouchable), 1), 4),
        "untraceable": _by_reason(plan.reason[untouchable]),
        "seconds": {"plan": round(min(plans), 3), "encode": round(min(encodes), 3)},
        "reasons": _by_reason(plan.reason[refused]),
        "flags": {flag.name: int((plan.flags & flag != 0).sum()) for flag in PlanFlag},
        "refused": [
            {
                "function": functions.name(row),
                "address": int(functions.start[row]),
                "reason": SENTENCES[Reason(plan.reason[row])],
            }
            for row in refused.tolist()
            if plan.reason[row] >= PLANNER_FIRST
        ],
    }


def _by_reason(reasons: npt.NDArray[np.uint8]) -> dict[str, int]:
    return {Reason(reason).name: count for reason, count in Counter(reasons.tolist()).most_common()}


def main() -> None:
    """Print a line for each program."""
    chosen = {argument: [Path(argument)] for argument in sys.argv[1:]} or programs()
    for name, paths in chosen.items():
        for path in paths:
            print(json.dumps(measure(path)), flush=True)
        if not paths:
            say_missing(name, "it is not installed")


if __name__ == "__main__":
    main()
