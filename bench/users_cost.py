"""What users cost the calls of a function they share, 1, 2, 4, 8, 16 of each kind, and what it takes to come and go.

    python bench/users_cost.py [--rounds 12] [--calls 200000] [--times 30]

One program runs on while users come and go. Its leaf is measured in turns with a twin that nobody hooks and one that
takes two time stamps and records itself (the floor), so each figure has its own floor. What is added is the difference
to the twin that is not hooked.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from _lines import Figure, say
from _programs import build_many, build_served
from _served import Recording, Served

from shadowgraph import live

LEAF, ANOTHER = ["traced_leaf"], ["traced_fib"]
NUMBERS = (1, 2, 4, 8, 16)
MANY = 10_000

EMPTY = """
#include <shadowgraph/ops.h>
int on_entry(struct sg_call *call) { (void)call; return 1; }
int no_exit(struct sg_call *call) { (void)call; return 0; }
void on_exit(struct sg_call *call) { (void)call; }
"""

# ns that a user may add to a call, alone or beside one of its kind; the slowest of eight may cost eight times as much.
COUNTER_NS, HANDLER_NS, RECORDER_NS = 4.0, 12.0, 6.0
OFF_NS = 1.0  # a jump there and one back, beside the nop's place that they take


def counter(functions: Sequence[str] = LEAF) -> live.User:
    return live.Counter(functions)


def totals(functions: Sequence[str] = LEAF) -> live.User:
    return live.Totals(functions)


def histogram(functions: Sequence[str] = LEAF) -> live.User:
    return live.Histogram(functions)


def handlers(functions: Sequence[str] = LEAF) -> live.User:
    return live.Ops(functions, source=EMPTY, entry="on_entry", exit="on_exit")


def entry_only(functions: Sequence[str] = LEAF) -> live.User:
    return live.Ops(functions, source=EMPTY, entry="no_exit", exit="on_exit")


@dataclass(frozen=True)
class Kind:
    """A kind of users, how one is made, and how many ns a call one alone may add."""

    name: str
    make: Callable[..., live.User]
    promised: float | None = None


KINDS = (
    Kind("counter", counter, COUNTER_NS),
    Kind("totals", totals),
    Kind("histogram", histogram),
    Kind("handlers", handlers),
    Kind("handlers, entry returns 0", entry_only),
)


@dataclass(frozen=True)
class Cost:
    """ns a call: of a function that nobody hooks, of one that records itself, and of the one that users are on."""

    plain: float
    floor: float
    traced: float

    @property
    def added(self) -> float:
        """What the users add to a call."""
        return self.traced - self.plain

    @property
    def figures(self) -> dict[str, Figure]:
        """To be shown."""
        ratio = self.traced / self.floor
        return {"ns": self.traced, "ratio": ratio, "to": "floor", "added_ns": self.added, "floor_ns": self.floor}


@dataclass(frozen=True)
class Bench:
    """The program, who is on it, and how long it is measured."""

    served: Served
    target: live.Target
    rounds: int
    calls: int

    def cost(self) -> Cost:
        """Measure the calls as they are now."""
        return Cost(**self.served.ask(self.rounds, self.calls))


def measure_kind(bench: Bench, kind: Kind) -> dict[int, Cost]:
    """The cost with so many users of a kind and nobody else."""
    users, found = [], {}
    for number in range(1, max(NUMBERS) + 1):
        users.append(bench.target.register(kind.make()))
        if number in NUMBERS:
            found[number] = bench.cost()
    assert all(user.missed == 0 for user in users), f"{kind.name}: calls were missed"
    for user in users:
        user.unregister()
    return found


def say_kind(kind: Kind, costs: dict[int, Cost]) -> None:
    """A line for each number of users."""
    one = costs[1]
    for number, cost in costs.items():
        figures = cost.figures
        if number == 1:
            target = {"added_ns": kind.promised} if kind.promised is not None else None
            say(f"1 {kind.name}", figures, target=target)
            continue
        times = cost.added / one.added if one.added > 0 else 0.0
        target = {"times_one": float(number)} if number == 8 else None
        say(f"{number} {kind.name}", figures | {"times_one": times}, target=target)


def say_beside_counter(bench: Bench, hook: float) -> None:
    """Handlers on a function that is counted, too; their own is what is more than the counter and the hooked call."""
    users = [bench.target.register(counter())]
    counted = bench.cost()
    users.append(bench.target.register(handlers()))
    cost = bench.cost()
    own = cost.traced - counted.plain - counted.added - hook
    say("a counter and 1 handlers", cost.figures | {"own_ns": own}, target={"own_ns": HANDLER_NS})
    for user in users:
        user.unregister()


def say_handlers(costs: dict[int, Cost], idle: dict[int, Cost], hook: float) -> None:
    """What each pair adds to a call: the first to that of a function that nobody is on, the next ones to what there is.

    ``hook`` is what a hooked call costs with neither handlers nor time stamps; what a pair alone adds to it is its own.
    """
    more = (costs[2].traced - costs[1].traced, (costs[8].traced - costs[1].traced) / 7)
    say(
        "a pair of empty handlers more, beside others",
        {"added_ns": more[0], "each_of_eight_ns": more[1]},
        target={"added_ns": HANDLER_NS},
    )
    alone: dict[str, Figure] = {"added_ns": costs[1].added, "hook_ns": hook, "own_ns": costs[1].added - hook}
    say("a pair of empty handlers, alone", alone, target={"added_ns": HANDLER_NS})
    saved = (costs[8].traced - idle[8].traced) / costs[8].traced
    say("saved by entries that return 0, of eight pairs", {"share": saved}, at_least={"share": 0.25})


def say_recorder(bench: Bench) -> float:
    """A recorder, alone and beside others; returns what is left of it alone without its time stamps and its record."""
    with tempfile.TemporaryDirectory(prefix="shadowgraph-bench-") as folder, ExitStack() as on:
        here = bench.target.register(live.Counter(ANOTHER))  # the target shows others only while one of its users is on
        on.callback(here.unregister)
        on.enter_context(Recording(bench.served.pid, bench.target, Path(folder)))
        alone = bench.cost()
        say("a recorder that joined, alone", alone.figures)
        for kind in KINDS:
            user = bench.target.register(kind.make())
            cost = bench.cost()
            user.unregister()
            more = {"more_ns": cost.traced - alone.traced}
            promised = {"more_ns": HANDLER_NS} if kind.name.startswith("handlers") else None
            say(f"a recorder and 1 {kind.name}", cost.figures | more, target=promised)
        for number in (2, 3, 4):
            on.enter_context(Recording(bench.served.pid, bench.target, Path(folder) / str(number)))
            before, cost = alone if number == 2 else cost, bench.cost()
            more = {"more_ns": cost.traced - before.traced}
            say(f"{number} recorders", cost.figures | more, target={"more_ns": RECORDER_NS})
    return alone.traced - alone.floor


def say_off(bench: Bench) -> None:
    """Hooked, but nobody listens."""
    user = bench.target.register(counter())
    user.pause()
    off = bench.cost()
    figures: dict[str, Figure] = {"added_ns": off.added, "ns": off.traced, "plain_ns": off.plain}
    say("hooked but switched off", figures, target={"added_ns": OFF_NS})
    user.unregister()


def timed(action: Callable[[], object]) -> float:
    """Seconds by the clock."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def say_times(what: str, seconds: Sequence[float], most: float | None = None, *, of: str = "least_ms") -> None:
    """The least of many times is the figure, as a rule: the machine may be doing other things besides."""
    figures: dict[str, Figure] = {"least_ms": min(seconds) * 1e3, "median_ms": statistics.median(seconds) * 1e3}
    say(what, figures, target={of: most} if most is not None else None)


def say_coming_and_going(bench: Bench, times: int) -> None:
    """Users of a function that is hooked already."""
    first = bench.target.register(counter())
    for kind in KINDS[:4]:
        came, went = [], []
        users = [kind.make() for _ in range(times)]  # before: compiling a handler leaves little in the caches
        for user in users:
            came.append(timed(lambda user=user: bench.target.register(user)))  # type: ignore[misc]
            went.append(timed(user.unregister))
        say_times(f"registering 1 {kind.name} on what is hooked", came, 1.0)
        say_times(f"unregistering 1 {kind.name}", went)
    first.unregister()


def say_attaching(program: Path, times: int) -> None:
    """From nothing to the first user, and back; in a process that runs on."""
    came, went = [], []
    with Served(program) as served:
        for _ in range(times):
            began = time.perf_counter()
            target = live.attach(served.pid)
            target.register(counter())
            came.append(time.perf_counter() - began)
            went.append(timed(target.close))
    say_times("attaching with one counter", came)
    say_times("detaching", went)


def came_and_went(target: live.Target, functions: list[str]) -> float:
    """Seconds that it takes to register a counter."""
    return came(target, live.Counter(functions))


def came(target: live.Target, user: live.User) -> float:
    """Seconds that it takes to register a user, who goes again."""
    seconds = timed(lambda: target.register(user))
    user.unregister()
    return seconds


def say_again(target: live.Target, number: int, times: int) -> None:
    """Users of each kind on very many functions that are hooked, named as by somebody before; and by new patterns."""
    names = [f"function_{one}" for one in range(number)]
    ways = {"by a glob": ["function_*"], "by a regular expression": ["re:^function_"], "by all their names": names}
    for how, functions in ways.items():
        came(target, live.Counter(functions))
        for kind in KINDS[:4]:
            users = [kind.make(functions) for _ in range(times)]  # before, as above
            what = f"registering 1 {kind.name} on {number:,} hooked functions, {how}"
            say_times(what, [came(target, user) for user in users], 1.0, of="median_ms")
    globs = ["function*", "funct*", "f*", "*unction_*", "*nction_*", "*ction_*"]
    for how, patterns in (("that tells how names begin", globs[:3]), ("that tells what names hold", globs[3:])):
        what = f"registering 1 counter on {number:,} hooked functions, by a glob {how}, for the first time"
        say_times(what, [came_and_went(target, [pattern]) for pattern in patterns])


def say_many(number: int, times: int) -> None:
    """A user on many functions that nobody has hooked yet, in a program that is in them all the time."""
    with Served(build_many(number)) as served, live.attach(served.pid) as target:
        served.ask("watch")
        user = live.Counter(["function_*"])
        seconds = timed(lambda: target.register(user))
        gaps = served.ask("watch")
        second = target.register(live.Totals(["function_*"]))
        while not sum(row["count"] for row in second.totals().values()):
            assert served.ask("watch"), "the program goes on"
        assert len(user.counts()) == number
        new = {
            "named exactly": [came_and_went(target, [f"function_{one}"]) for one in range(100, 130)],
            "by a glob": [came_and_went(target, [f"function_{one}*"]) for one in range(100, 130)],
            "by a regular expression": [came_and_went(target, [f"re:tion_{one}$"]) for one in range(100, 130)],
            "by one that ignores case": [came_and_went(target, [f"re:(?i)TION_{one}$"]) for one in range(100, 130)],
        }
        say_times("registering the first handlers of a process", [came(target, handlers(["function_*"]))])
        say_again(target, number, times)
    say(
        f"registering a user on {number:,} new functions",
        {"seconds": seconds, "stopped_ms": gaps["total_ms"], "longest_stop_ms": gaps["longest_ms"]},
        target={"seconds": 2.0, "stopped_ms": 100.0},
    )
    for how, seconds_each in new.items():
        say_times(f"registering on some of them, {how}, for the first time", seconds_each, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=30, help="how often users come and go")
    options = parser.parse_args()
    program = build_served()
    with Served(program) as served, live.attach(served.pid) as target:
        bench = Bench(served, target, options.rounds, options.calls)
        costs = {}
        for kind in KINDS:
            costs[kind.name] = measure_kind(bench, kind)
            say_kind(kind, costs[kind.name])
        hook = say_recorder(bench)
        say_handlers(costs["handlers"], costs["handlers, entry returns 0"], hook)
        say_off(bench)
        say_beside_counter(bench, hook)
        say_coming_and_going(bench, options.times)
    say_attaching(program, options.times)
    say_many(MANY, options.times)


if __name__ == "__main__":
    main()
