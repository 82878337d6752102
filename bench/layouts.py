"""What a frame that several users share holds: three layouts, in words and in ns a call for 1, 2, 4, 8, 16 users.

    python bench/layouts.py [--rounds 12] [--calls 200000]

The users are empty, and the same for all; entry and exit are all there is: no time stamp, no record. The ratio is to
one user of the same layout. docs/layouts.md tells what each makes possible, and why ours is the mask.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from typing import Any

from _lines import say
from _programs import build_layouts

TITLES = {
    "chain": "a chain of trampolines",
    "list": "one frame, a list of users",
    "mask": "one frame, a mask of users (ours)",
}


def measure(rounds: int, calls: int) -> list[dict[str, Any]]:
    """What the program says: its checks, and its figures."""
    done = subprocess.run([str(build_layouts()), str(rounds), str(calls)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"layouts: status {done.returncode}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=200_000)
    options = parser.parse_args()
    one: dict[str, float] = {}
    for row in measure(options.rounds, options.calls):
        layout, what = row["layout"], TITLES[row["layout"]]
        if "words" not in row:
            figures = {"exits_to_successor": row["exits_to_successor"]}
            most = {"exits_to_successor": 0.0} if layout == "mask" else None
            say(f"{what}: one goes meanwhile", figures, target=most)
            continue
        added = row["ns"] - row["plain_ns"]
        times = added / one.setdefault(layout, added)
        say(
            f"{what}: {row['users']}",
            {"words": row["words"], "ratio": times, "to": "one user", "ns": row["ns"], "added_ns": added},
        )


if __name__ == "__main__":
    main()
