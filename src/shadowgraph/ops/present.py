"""Functions that others have hooked already: our recorder and the agent's own needs have them, too."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.registry import Registry
from shadowgraph.agent.rings import Rings
from shadowgraph.ops.choices import Choice

__all__ = ["join_functions"]


def join_functions(agent: Agent, slot: int, choices: Iterable[Choice]) -> list[int]:
    """Put the recorder in a slot on what is present of these choices; returns the numbers of those functions."""
    registry, rings = Registry(agent.arena, agent.zones), Rings(agent.arena, slot)
    numbers, callers = list[int](), list[int]()
    with registry.locked():
        for choice in choices:
            present = [(row, number) for row, number in choice.numbers.items() if number in choice.present]
            numbers += [number for _, number in present]
            callers += [number for row, number in present if choice.flags[row] & layout.FLAG_CALLER]
            rings.put_values(choice.present_values)
            captured = layout.FLAG_VALUES | layout.FLAG_VECTORS
            flags = {
                number: flags | (captured if number in choice.present_values else 0)
                for number, flags in choice.present.items()
            }
            registry.add_flags(flags, choice.present_variants)
        registry.put_on(slot, np.array(numbers, np.int64), np.array(callers, np.int64))
    return numbers
