"""What reading costs: converting, report, graph and replay over many calls, as lines of JSON.

    python bench/trace_views.py [--calls 1e8] [--threads 2] [--keep FOLDER]

The calls are simulated (seeded, nested, with a main function around each thread) and take the way of recorded ones: raw
records into a spool, the spool into Parquet, the views as commands of their own, bound to one processor. Each line says
what was measured and, where the project promises a figure, the promise ("target") and whether it was kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from shadowgraph.agent import layout  # noqa: E402
from shadowgraph.trace.folder import CALLS, SPOOL, create_folder  # noqa: E402
from shadowgraph.trace.spool_writer import SpoolWriter  # noqa: E402

TEMPLATE_CALLS = 1 << 17
TEMPLATES = 4
FUNCTIONS = 2000
TICKS_PER_NS = 2.5
SEGMENT = 256 << 10
COMMAND = "import sys; from shadowgraph.cli.main import main; main(sys.argv[1:])"


def template(seed: int) -> tuple[np.ndarray[Any, Any], int]:
    """Raw records of many nested calls in the order of their exits, starting at tick 0; and how long they take."""
    random_ = random.Random(seed)
    weights = [1 / rank for rank in range(1, FUNCTIONS)]
    functions = random_.choices(range(2, FUNCTIONS + 1), weights, k=TEMPLATE_CALLS)
    now, open_calls, rows = 0, [], []
    while len(rows) < TEMPLATE_CALLS:
        now += 20 + int(random_.lognormvariate(4, 0.9))
        if open_calls and (
            len(rows) + len(open_calls) >= TEMPLATE_CALLS or len(open_calls) > 13 or random_.random() < 0.48
        ):
            start, function = open_calls.pop()
            depth = len(open_calls) + 1
            rows.append((depth << layout.START_BITS | start, (now - start) << layout.FUNCTION_BITS | function))
        else:
            open_calls.append((now, functions[len(rows)]))
    return np.array(rows, "<u8"), now + 50


def write_spool(folder: Path, calls: int, threads: int) -> None:
    """A spool of that many calls, the threads taking turns."""
    create_folder(folder, {"program": "/usr/bin/simulated", "arguments": ["simulated"]})
    writer = SpoolWriter(folder / SPOOL)
    templates = [template(seed) for seed in range(TEMPLATES)]
    ids = list(range(1, FUNCTIONS + 1))
    writer.append("clock", {"tick": 0, "monotonic_ns": 0, "realtime_ns": 0})
    writer.append("modules", [{"module": 0, "path": "/usr/bin/simulated"}])
    names = ["main", *(f"function_{number}" for number in ids[1:])]
    columns = {"id": ids, "name": names, "module": [0] * FUNCTIONS, "address": ids, "size": ids}
    writer.append("functions", columns)
    writer.append(
        "threads", [{"thread": n, "process": 0, "pid": 1000, "tid": 1000 + n, "name": f"t{n}"} for n in range(threads)]
    )
    random_ = random.Random(0)
    now = [1000 + 77 * thread for thread in range(threads)]
    for _ in range(calls // TEMPLATE_CALLS // threads):
        for thread in range(threads):
            records, span = random_.choice(templates)
            moved = records.copy()
            moved[:, 0] += np.uint64(now[thread])
            data = memoryview(moved).cast("B")
            for at in range(0, len(data), SEGMENT):
                writer.append_records(thread, data[at : at + SEGMENT])
            now[thread] += span
    for thread in range(threads):
        duration = now[thread] - 500
        escape = [duration, layout.ESCAPE_LONG, 500, 1]
        writer.append_records(thread, np.array(escape, "<u8").tobytes())
    end = max(now) + 1000
    writer.append("clock", {"tick": end, "monotonic_ns": int(end / TICKS_PER_NS), "realtime_ns": 0})
    writer.append("end", {"tick": end, "reason": "exited", "status": 0})
    writer.close()


def run(arguments: list[str], output: Any, stop_after: int | None = None) -> dict[str, Any]:
    """Run a command on one processor: seconds in all and of the processor, and the most memory it had, in MB."""
    began = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    processor = str(max(os.sched_getaffinity(0)))
    process = subprocess.Popen(
        ["taskset", "-c", processor, sys.executable, "-c", *arguments],
        stdout=subprocess.PIPE if stop_after else output,
        env=environment,
    )
    first = None
    if stop_after:
        assert process.stdout is not None
        for _ in range(stop_after):
            process.stdout.readline()
        first = time.perf_counter() - began
        process.kill()
    _, status, usage = os.wait4(process.pid, 0)
    if status and not stop_after:
        raise SystemExit(f"{arguments}: status {status}")
    seconds = first if first is not None else time.perf_counter() - began
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": usage.ru_maxrss // 1024,
    }


def say(what: str, figures: dict[str, Any], **targets: float) -> None:
    """One line of JSON; each target is the most that a figure of the same name may be."""
    kept = all(figures[name] <= limit for name, limit in targets.items())
    print(json.dumps({"what": what} | figures | ({"target": targets, "kept": kept} if targets else {})), flush=True)


def measure(folder: Path, calls: int, threads: int, views: list[tuple[str, list[str], dict[str, float]]]) -> None:
    """Make a trace and measure what is done with it."""
    began = time.perf_counter()
    write_spool(folder, calls, threads)
    say("spool", {"calls": calls, "threads": threads, "seconds": round(time.perf_counter() - began, 2)})
    convert = "import sys; from shadowgraph.trace.convert import convert; convert(sys.argv[1])"
    figures = run([convert, str(folder)], subprocess.DEVNULL)
    rate = calls / figures["cpu_seconds"]
    size = (folder / CALLS).stat().st_size / calls
    figures |= {"calls_per_second": round(rate), "bytes_per_call": round(size, 2), "ns_per_call": round(1e9 / rate)}
    say("convert", {"calls": calls} | figures, bytes_per_call=8)
    for name, arguments, targets in views:
        stop_after = 20 if "first lines" in name else None
        figures = run([COMMAND, arguments[0], str(folder), *arguments[1:]], subprocess.DEVNULL, stop_after)
        say(name, {"calls": calls} | figures, **targets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=float, default=1e8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="write the traces here and leave them")
    options = parser.parse_args()
    calls = int(options.calls)
    with tempfile.TemporaryDirectory(prefix="shadowgraph-bench-") as temporary:
        place = options.keep or Path(temporary)
        measure(
            place / "many.sgt",
            calls,
            options.threads,
            [
                ("report", ["report"], {"cpu_seconds": 6, "peak_mb": 500}),
                ("report by module", ["report", "--by", "module"], {}),
                ("replay, first lines", ["replay"], {"seconds": 1}),
                ("replay of one millisecond in the middle", ["replay", "--time", "1s-1001ms"], {}),
                ("graph", ["graph", "--min", "1"], {}),
            ],
        )
        measure(
            place / "tenth.sgt",
            calls // 10,
            options.threads,
            [
                ("replay, first lines", ["replay"], {"seconds": 1}),
                ("replay, all lines", ["replay"], {"cpu_seconds": 6}),
            ],
        )


if __name__ == "__main__":
    main()
