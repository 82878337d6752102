"""How many calls a second the recorder takes from a program that does nothing but call, and whether any are lost.

    python bench/draining.py [--runs 3] [--calls 2e7] [--threads 2]

The threads of programs/flood.c call a leaf as fast as they can. With `block` they wait when the buffer is full: the
calls they made, divided by the time from the first to the last, is the rate that is kept up with, however long the
program runs. When it has ended the trace is converted, as by `record`: what a call costs in all is the processor time
of the program, of the recorder and of the conversion, and that is where calls that are cut for being short save.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from _lines import Figure, say
from _programs import ROOT, build_flood

sys.path.insert(0, str(ROOT / "src"))

from shadowgraph.agent import layout
from shadowgraph.agent.inject import Settings
from shadowgraph.ops.recording import Recording
from shadowgraph.ops.selection import Selection, function_rule
from shadowgraph.trace.convert import convert
from shadowgraph.trace.folder import SPOOL, create_folder
from shadowgraph.trace.spool_writer import SpoolWriter

SMALL = 8  # segments of 128 KiB: a buffer of 1 MiB, which is full most of the time
LONG = 1 << 32  # ticks: more than a second, longer than any call here
PROMISED_RATE = 20e6


@dataclass(frozen=True)
class Drained:
    """Of one run: what the program says of itself, what draining took, and what is in the spool."""

    elapsed_s: float
    program_s: float
    recorder_s: float
    converting_s: float
    made: int
    recorded: int
    lost: int
    filtered: int

    @property
    def rate(self) -> float:
        """Calls a second, from the first to the last."""
        return self.made / self.elapsed_s

    @property
    def recorder_ns(self) -> float:
        """Processor time of the recorder for each call made; its start-up is in it."""
        return self.recorder_s / self.made * 1e9

    @property
    def rate_of_two(self) -> float:
        """What two processors give if nobody else uses them: from the processor time of program and recorder."""
        return 2 / ((self.program_s + self.recorder_s) / self.made)

    @property
    def all_ns(self) -> float:
        """Processor time of program, recorder and conversion for each call made."""
        return (self.program_s + self.recorder_s + self.converting_s) / self.made * 1e9

    @property
    def unaccounted(self) -> int:
        """Calls neither in the trace nor counted as lost or filtered."""
        return self.made - self.recorded - self.lost - self.filtered


def drain(program: Path, threads: int, calls: int, settings: Settings) -> Drained:
    """Run the program, drain what it records, and convert it."""
    with tempfile.TemporaryDirectory(prefix="shadowgraph-bench-") as temporary:
        said, folder = Path(temporary) / "flood.json", Path(temporary) / "flood.sgt"
        command = [str(program), str(threads), str(calls), str(said)]
        create_folder(folder, {"program": str(program), "arguments": command})
        spool = SpoolWriter(folder / SPOOL)
        selection = Selection([function_rule("traced_leaf", include=True)])
        began = processor_time()
        Recording(spool, selection, settings).run(str(program), command)
        recorder = processor_time() - began
        spool.close()
        began = processor_time()
        manifest = convert(folder)
        converting = processor_time() - began
        flood = json.loads(said.read_text())
    return Drained(
        elapsed_s=flood["elapsed_ns"] / 1e9,
        program_s=flood["processor_ns"] / 1e9,
        recorder_s=recorder,
        converting_s=converting,
        made=flood["made"],
        recorded=int(manifest["calls"]),
        lost=int(manifest["missed"]) + int(manifest["dropped"]),
        filtered=int(manifest["filtered"]),
    )


def processor_time() -> float:
    """Seconds of processor time of this process, all of its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def say_kept_up(runs: list[Drained], threads: int) -> None:
    """The rate that block keeps up with, and what it is made of."""
    best = max(runs, key=lambda run: run.rate)
    least = min(runs, key=lambda run: run.recorder_s)
    figures: dict[str, Figure] = {
        "calls_per_second": best.rate,
        "calls_per_second_of_two_processors": max(run.rate_of_two for run in runs),
        "recorder_ns_per_call": least.recorder_ns,
        "program_ns_per_call": min(run.program_s / run.made for run in runs) * 1e9,
        "converting_ns_per_call": min(run.converting_s / run.made for run in runs) * 1e9,
        "unaccounted": sum(run.unaccounted for run in runs),
        "lost": sum(run.lost for run in runs),
    }
    say(
        f"block, {threads} threads calling",
        figures,
        target={"unaccounted": 0, "lost": 0},
        at_least={"calls_per_second": PROMISED_RATE},
    )


def say_dropped(runs: list[Drained], threads: int) -> None:
    """Whether drop counts exactly, with a buffer that is always full."""
    made, lost = sum(run.made for run in runs), sum(run.lost for run in runs)
    figures: dict[str, Figure] = {
        "unaccounted": sum(abs(run.unaccounted) for run in runs),
        "dropped": f"{lost / made:.0%}",
        "calls_per_second": max(run.rate for run in runs),
    }
    say(f"drop, {threads} threads calling, buffer of 1 MiB", figures, target={"unaccounted": 0})


def say_cut(cut: list[Drained], recorded: list[Drained], threads: int) -> None:
    """What a call that is cut costs in all, against a recorded one."""
    ns, recorded_ns = min(run.all_ns for run in cut), min(run.all_ns for run in recorded)
    figures: dict[str, Figure] = {
        "ratio": ns / recorded_ns,
        "to": "recorded",
        "in_all_ns": ns,
        "recorded_in_all_ns": recorded_ns,
        "unaccounted": sum(run.unaccounted for run in cut),
    }
    say(f"cut by --min-time, {threads} threads calling", figures, target={"ratio": 0.5, "unaccounted": 0})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--calls", type=float, default=2e7, help="of each thread")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    program, calls = build_flood(), int(options.calls)
    block = Settings(policy=layout.POLICY_BLOCK)
    drop = Settings(policy=layout.POLICY_DROP, segments=SMALL)
    shortest = Settings(policy=layout.POLICY_BLOCK, minimal_ticks=LONG)
    drained, dropped, cut = [], [], []
    for _ in range(options.runs):
        drained.append(drain(program, options.threads, calls, block))
        dropped.append(drain(program, options.threads, calls // 4, drop))
        cut.append(drain(program, options.threads, calls, shortest))
    say_kept_up(drained, options.threads)
    say_dropped(dropped, options.threads)
    say_cut(cut, drained, options.threads)


if __name__ == "__main__":
    main()
