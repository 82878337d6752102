"""Thunks lead to the path that serves who is on their functions, as the slow twin of the native loop says of each."""

from __future__ import annotations

import numpy as np
import pytest

from shadowgraph.agent import layout
from shadowgraph.agent.entries import PATHS, Leading, lead, put_on
from tests.support.slow_entries import set_entries

_ZONES = {zone: 0x1000 + 16 * at for at, zone in enumerate(PATHS.values())}
_COUNT = 20_000
_USERS = 5  # few, so that all ways in which they may come together do
_FLAGS = (
    *(0, 0, 0, 0, layout.FLAG_CALLER, layout.FLAG_SILENT, layout.FLAG_VALUES, layout.FLAG_TRUE_RETURN),
    *(layout.FLAG_EXEC, layout.FLAG_LOADED, layout.FLAG_CLONE, layout.FLAG_EXIT, layout.FLAG_SIGACTION),
)


def functions_of(random: np.random.Generator) -> np.ndarray:
    functions = np.zeros(_COUNT, layout.function_dtype)
    functions["id"] = np.arange(_COUNT)
    functions["body"] = 0x10_0000 + np.arange(_COUNT)
    functions["flags"] = random.choice(_FLAGS, _COUNT) | random.choice([0, 0, 0, layout.FLAG_VALUES], _COUNT)
    users = random.integers(0, 1 << _USERS, (_COUNT, 2))
    alike = random.random(_COUNT) < 0.8
    users[alike, 1] = users[alike, 0]
    functions["users"] = users
    functions["callers"] = random.integers(0, 1 << _USERS, _COUNT) * (random.random(_COUNT) < 0.3)
    functions["cell"] = np.arange(_COUNT)
    return functions


def test_each_thunk_leads_where_the_slow_twin_says() -> None:
    led_to: set[int] = set()
    for seed in range(40):
        random = np.random.default_rng(seed)
        functions = functions_of(random)
        masks = {name: int(random.integers(0, 1 << _USERS)) for name in ("armed", "measures", "frugal", "recorders")}
        masks["counters"] = int(random.integers(0, 1 << _USERS)) & ~masks["measures"]
        if seed % 2:
            masks["armed"] |= (1 << _USERS) - 1
            masks["recorders"] |= 1
        numbers = random.permutation(_COUNT)[: _COUNT // 2]
        expected = functions.copy()
        records = expected[numbers]
        set_entries(records, _ZONES, **masks)
        for name in ("recorders", "enter"):
            expected[name][numbers] = records[name]
        leading = Leading.to(_ZONES)
        for name, mask in masks.items():
            setattr(leading, name, mask)
        lead(functions, numbers, leading)
        assert (functions == expected).all(), masks
        led_to |= set(functions["enter"].tolist())
    assert led_to >= set(_ZONES.values()), "all paths have been led to"


def test_a_user_is_put_on_both_sides_of_its_functions_and_on_no_others() -> None:
    functions = functions_of(np.random.default_rng(0))
    numbers = np.arange(3, _COUNT, 7)
    expected = functions.copy()
    expected["users"][numbers] |= np.uint64(1 << 63)
    put_on(functions, numbers, 1 << 63)
    assert (functions == expected).all()


@pytest.mark.parametrize("number", [-1, layout.FUNCTIONS])
def test_a_number_that_no_function_has_changes_nothing(number: int) -> None:
    functions = functions_of(np.random.default_rng(0))
    expected = functions.copy()
    with pytest.raises(IndexError):
        put_on(functions, np.array([1, number]), 4)
    with pytest.raises(IndexError):
        lead(functions, np.array([1, number]), Leading.to(_ZONES))
    assert (functions == expected).all()
