"""Made-up C functions in many builds do the same with and without hooks, and calls are counted as they happen."""

from __future__ import annotations

import shutil

import pytest

from tests.support.hook_bench import DATA, Bench, build, random_state
from tests.support.random_functions import random_functions

FUNCTIONS = 60
CALLS = 8
BUILDS = {
    "O0": ("-O0",),
    "O1": ("-O1",),
    "O2": ("-O2",),
    "O3": ("-O3",),
    "Os": ("-Os",),
    "O2 cet": ("-O2", "-fcf-protection=full"),
    "O2 no cet": ("-O2", "-fcf-protection=none"),
    "O0 cet": ("-O0", "-fcf-protection=full"),
    "Os cet": ("-Os", "-fcf-protection=full"),
    "O2 frame pointer": ("-O2", "-fno-omit-frame-pointer"),
    "O2 patchable": ("-O2", "-fpatchable-function-entry=5"),
    "O2 patchable before": ("-O2", "-fpatchable-function-entry=7,2", "-fcf-protection=full"),
    "O2 unaligned": ("-O2", "-fno-align-functions", "-fno-align-loops", "-fno-align-jumps"),
    "O3 native": ("-O3", "-march=x86-64-v3"),
    "O2 fixed": ("-O2", "-static", "-no-pie", "-fno-pie", "-Wl,-Ttext-segment=0x10000000", "-Wl,-e,0"),
    "Os fixed": ("-Os", "-static", "-no-pie", "-fno-pie", "-Wl,-Ttext-segment=0x10000000", "-Wl,-e,0"),
    "O2 thunks": ("-O2", "-mindirect-branch=thunk", "-mfunction-return=thunk"),
}


@pytest.fixture(scope="module", autouse=True)
def need_gcc() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", BUILDS)
def test_functions_do_the_same_hooked(name: str, seed: int) -> None:
    path = build(random_functions(seed, FUNCTIONS), f"{name}-{seed}".replace(" ", "-"), *BUILDS[name])
    bench = Bench(path, far=bool(seed % 2))
    own = [row for row in range(len(bench.functions)) if bench.functions.name(row).startswith("f")]
    assert len(own) >= FUNCTIONS - 5  # identical ones may have been folded
    calls = []
    for row in own:
        for case in range(CALLS):
            state = random_state(1000 * row + case, rdx=DATA, rcx=DATA + 0x8000)
            calls.append((int(bench.functions.start[row]), state))
    hookable = bench.hookable()
    hooked = bench.run(calls, hookable)
    for call, before, after in zip(calls, bench.run(calls), hooked, strict=True):
        assert before.signal == 0
        assert after.effect == before.effect, hex(call[0])
        row = bench.functions.find(call[0])
        assert not bench.plan.hookable[row] or after.entered[0] == row


@pytest.mark.parametrize("name", BUILDS)
def test_nearly_all_functions_are_hookable(name: str) -> None:
    refused = total = 0
    for seed in range(3):
        path = build(random_functions(seed, FUNCTIONS), f"{name}-{seed}".replace(" ", "-"), *BUILDS[name])
        bench = Bench(path)
        own = [row for row in range(len(bench.functions)) if bench.functions.name(row).startswith("f")]
        total += len(own)
        refused += sum(not bench.plan.hookable[row] for row in own)
    assert refused <= total // 100
