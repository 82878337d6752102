"""What a call costs the program: recorded, cut, passed by and not traced, as multiples of the floor.

    python bench/call_cost.py [--runs 3] [--rounds 12] [--calls 200000]

The floor is a call that takes two time stamps and writes its own record, inline (programs/floor.S). It is measured in
the same processes, in turns with the traced calls; every figure is the best of all rounds of all runs.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from _calls import Figures, Load, Recorded, record, run
from _lines import Figure, say
from _programs import build_calls

SHAPES = ("leaf", "recursion", "chain", "turns", "forward", "tail", "library", "library_inside")
LOOPS = ("leaf", "in_loop", "in_outer_loop")
DRAINED, OVERWRITE = ("--on-full", "block"), ("--on-full", "overwrite")
DEPTH = ("--depth", "2")
SHORTEST = ("--min-time", "1s")

# shape: what it is, and how many times the floor it may cost
PROMISED = {
    "leaf": ("leaf in a loop", 1.25),
    "recursion": ("recursion (fib)", 1.25),
    "chain": ("chain of eight nested calls", 1.25),
    "turns": ("eight functions in turns", 1.25),
}
BESIDES = {
    "library": "library function, through the PLT",
    "forward": "function that begins with a call, and what it calls",
    "tail": "tail call, and what it jumps to",
}


@dataclass
class Setting:
    """One way of recording: its options, the load, and what was measured of it in all runs."""

    options: tuple[str, ...]
    load: Load
    figures: Figures
    exact: bool = True

    def measure(self, program: Path, trace: Path) -> None:
        """One more run."""
        recorded = record(program, self.load, self.figures, trace, *self.options)
        self.exact = self.exact and _adds_up(recorded)


def _adds_up(recorded: Recorded) -> bool:
    """Every call made is recorded or counted, and nothing else is in the trace."""
    return recorded.accounted == recorded.made


def say_recorded(setting: Setting, title: str) -> None:
    """The promised shapes, and those that are only shown."""
    figures = setting.figures
    floor = figures.best("leaf", "floor")
    for shape, (what, limit) in PROMISED.items():
        own_floor = figures.best(shape, "floor") if (shape, "floor") in figures.threads else floor
        ns = figures.best(shape, "traced")
        say(
            f"{what}, {title}",
            {"ns": ns, "ratio": ns / own_floor, "to": "floor", "floor_ns": own_floor},
            target={"ratio": limit},
        )
    for shape, what in BESIDES.items():
        ns = figures.best(shape, "traced")
        say(f"{what}, {title}", {"ns": ns, "ratio": ns / floor, "to": "floor"})


def say_threads(setting: Setting) -> None:
    """Two threads at once: the slower one."""
    ns, floor = setting.figures.best("leaf", "traced"), setting.figures.best("leaf", "floor")
    say(
        "leaf in a loop, two threads, drained",
        {"ns": ns, "ratio": ns / floor, "to": "floor", "floor_ns": floor},
        target={"ratio": 1.25},
    )


def say_cut(depth: Setting, shortest: Setting, drained: Setting) -> None:
    """Calls that are cut, against recorded ones."""
    recorded, cut = depth.figures.best("in_loop", "traced"), depth.figures.best("in_outer_loop", "traced")
    figures: dict[str, Figure] = {"ns": cut, "ratio": cut / recorded, "to": "recorded", "recorded_ns": recorded}
    say("cut by --depth", figures, target={"ratio": 0.5})
    # To know that a call was short takes both time stamps, and these alone are nearly all that a recorded call costs:
    # the floor is the measure here. What is saved lies elsewhere: draining.py holds that against the promise.
    cut, floor = shortest.figures.best("leaf", "traced"), shortest.figures.best("leaf", "floor")
    recorded = drained.figures.best("leaf", "traced")
    figures = {"ns": cut, "ratio": cut / floor, "to": "floor", "floor_ns": floor, "recorded_ns": recorded}
    say("cut by --min-time", figures, target={"ratio": 1.25})


def say_passed(drained: Setting, alone: Figures) -> None:
    """Calls that are not traced: of hooked functions, and of others."""
    inside, recorded = drained.figures.best("library_inside", "traced"), drained.figures.best("library", "traced")
    say(
        "library calls what is traced for the program",
        {"ns": inside, "ratio": inside / recorded, "to": "recorded", "recorded_ns": recorded},
        target={"ratio": 0.5},
    )
    untraced, without = drained.figures.best("leaf", "plain"), alone.best("leaf", "plain")
    say(
        "function that is not traced",
        {"ns": untraced, "ratio": untraced / without, "to": "program alone", "alone_ns": without},
        target={"ratio": 1.03},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=200_000)
    options = parser.parse_args()
    program = build_calls()
    load = Load(SHAPES, options.rounds, options.calls)
    loops = Load(LOOPS, options.rounds, options.calls)
    leaves = Load(("leaf",), options.rounds, options.calls)
    drained, overwrite = Setting(DRAINED, load, Figures()), Setting(OVERWRITE, load, Figures())
    depth, shortest = Setting(DEPTH, loops, Figures()), Setting(SHORTEST, leaves, Figures())
    threads = Setting(DRAINED, Load(("leaf",), options.rounds, options.calls, threads=2), Figures())
    settings = {"drained": drained, "overwrite": overwrite, "depth": depth, "min-time": shortest, "threads": threads}
    alone = Figures()
    with tempfile.TemporaryDirectory(prefix="shadowgraph-bench-") as temporary:
        for _ in range(options.runs):
            run([str(program), *leaves.arguments], alone)
            for setting in settings.values():
                setting.measure(program, Path(temporary) / "trace.sgt")
    say_recorded(drained, "drained")
    say_recorded(overwrite, "overwriting")
    say_threads(threads)
    say_cut(depth, shortest, drained)
    say_passed(drained, alone)
    wrong = [name for name, setting in settings.items() if not setting.exact]
    say(
        "all calls recorded or counted", {"wrong_runs": len(wrong), "which": ", ".join(wrong)}, target={"wrong_runs": 0}
    )


if __name__ == "__main__":
    main()
