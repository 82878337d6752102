"""What a recorded call costs in Shadowgraph and in other tracers, those of them that are installed, in turns.

    python bench/against_peers.py [--runs 2] [--rounds 10]

All of them trace the same functions of the same program (programs/shapes.c), each built as the tracer needs it. Figures
are medians of all rounds: a peer whose buffers are fresh memory each time pays for that in some rounds only.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from _calls import Figures, Load, record
from _lines import Figure, say, say_missing
from _peers import frida_hooks, lttng, uftrace, uprobes, xray
from _peers.peer import SHAPES, Measured, NotInstalled, Peer, folder_size
from _programs import NotBuilt, build_calls


def measure_ourselves(folder: Path, rounds: int, calls: int) -> Measured:
    """Shadowgraph as it comes: the recorder drains, every call is kept."""
    figures, trace = Figures(), folder / "trace.sgt"
    recorded = record(build_calls(), Load(SHAPES, rounds, calls), figures, trace)
    return Measured(figures, recorded.made, folder_size(trace), int(recorded.manifest["calls"]))


OURSELVES = Peer("shadowgraph", measure_ourselves)
PATCHED = Peer("uftrace -P (the same program)", uftrace.measure_patched)
PEERS = [
    PATCHED,
    Peer("uftrace (built with -pg)", uftrace.measure_built),
    Peer("XRay, flight data recorder (built by clang)", xray.measure),
    Peer("LTTng-UST (built with -finstrument-functions)", lttng.measure),
    Peer("Frida, empty C hooks (nothing recorded)", frida_hooks.measure_c),
    Peer("Frida, empty JavaScript hooks (nothing recorded)", frida_hooks.measure_javascript, calls=20_000),
    Peer("uprobe and uretprobe", uprobes.measure, calls=4_000),
]
# A call of uftrace's costs at least so many of ours, in the same program. (Where the program was built for uftrace, a
# fifth of its call is less than the floor on some processors: that row makes no promise.)
PROMISED = 5.0


def measure_all(runs: int, rounds: int) -> tuple[dict[Peer, list[Measured]], dict[Peer, str]]:
    """All peers in turns, so often; what was measured, and why the others were not."""
    measured: dict[Peer, list[Measured]] = {}
    missing: dict[Peer, str] = {}
    with tempfile.TemporaryDirectory(prefix="shadowgraph-bench-") as temporary:
        for _ in range(runs):
            for peer in [OURSELVES, *PEERS]:
                if peer in missing:
                    continue
                try:
                    measured.setdefault(peer, []).append(peer.measure(Path(temporary), rounds, peer.calls))
                except (NotInstalled, NotBuilt, RuntimeError) as reason:
                    missing[peer] = str(reason).splitlines()[0]
    return measured, missing


def middle(runs: list[Measured], shape: str, twin: str = "traced") -> float:
    """The median over all rounds of the best run."""
    return min(run.figures.middle(shape, twin) for run in runs)


def together(runs: list[Measured]) -> float:
    """One figure for all shapes: their mean."""
    return sum(middle(runs, shape) for shape in SHAPES) / len(SHAPES)


def describe(runs: list[Measured]) -> dict[str, Figure]:
    """The figures of one tracer: nanoseconds, bytes, calls lost."""
    last = runs[-1]
    figures: dict[str, Figure] = {f"{shape}_ns": middle(runs, shape) for shape in SHAPES}
    figures["bytes_per_call"] = last.bytes / last.made if last.bytes else None
    figures["not_recorded"] = None if last.recorded is None else f"{max(0, last.made - last.recorded) / last.made:.1%}"
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    measured, missing = measure_all(options.runs, options.rounds)
    if OURSELVES not in measured:
        raise SystemExit(missing[OURSELVES])
    ours = measured[OURSELVES]
    floor = middle(ours, "leaf", "floor")
    figures: dict[str, Figure] = {"ratio": together(ours) / floor, "to": "floor", **describe(ours)}
    say("shadowgraph", figures)
    for peer in PEERS:
        if peer in missing:
            say_missing(peer.name, missing[peer])
            continue
        runs = measured[peer]
        figures = {"ratio": together(runs) / together(ours), "to": "shadowgraph", **describe(runs)}
        at_least = {"ratio": PROMISED} if peer is PATCHED else None
        say(peer.name, figures, at_least=at_least)


if __name__ == "__main__":
    main()
