"""How much of real programs can be hooked: one JSON line for each, with every refused function and its reason.

Usage: python bench/coverage.py [PROGRAM OR LIBRARY ...]; by default those that the project's goals name, as far as
they are installed. ``hookable_of_traceable`` leaves out functions that no hook may touch whatever their code (the
program's first instruction, stack switchers, code whose runtime walks its own stack); ``seconds`` is the time to plan
and to encode all thunks on one core, the best of three.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from shadowgraph.image import SENTENCES, Reason, open_image, read_functions
from shadowgraph.image.reasons import PLANNER_FIRST
from shadowgraph.patch import PlanFlag, encode_thunks, plan_module

NAMES = ("bash", "perl", "python3", "node", "sqlite3")
PATTERNS = ("libsqlite3.so.0", "libc.so.6", "libpython3*.so.1.0")


def programs() -> list[Path]:
    """What is installed of bash, perl, python3, node, sqlite3 and its library, and gcc's cc1."""
    found = [Path(path) for name in NAMES for path in (f"/usr/bin/{name}", shutil.which(name)) if path]
    for pattern in PATTERNS:
        found += sorted(Path("/usr/lib/x86_64-linux-gnu").glob(pattern))
    found += sorted(Path("/usr/lib/gcc").glob("x86_64-linux-gnu/*/cc1"))
    elf = [path.resolve() for path in found if path.exists() and path.read_bytes()[:4] == b"\x7fELF"]
    return list(dict.fromkeys(elf))


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
    untouchable = int(((plan.reason > 0) & (plan.reason < PLANNER_FIRST) & real).sum())
    total, hookable = int(real.sum()), int(plan.hookable.sum())
    return {
        "program": str(path),
        "functions": total,
        "hookable": hookable,
        "percent": round(100 * hookable / total, 4),
        "hookable_of_traceable": round(100 * hookable / max(total - untouchable, 1), 4),
        "seconds": {"plan": round(min(plans), 3), "encode": round(min(encodes), 3)},
        "reasons": {Reason(reason).name: count for reason, count in Counter(plan.reason[refused].tolist()).items()},
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


def main() -> None:
    """Print a line for each program."""
    for path in [Path(argument) for argument in sys.argv[1:]] or programs():
        print(json.dumps(measure(path)), flush=True)


if __name__ == "__main__":
    main()
