"""Every distinct recipe once: a recipe follows from its bytes, so most functions find theirs by their first bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shadowgraph.image.reasons import Reason
from shadowgraph.patch.decode import LONGEST_INSTRUCTION, Step, decode_steps
from shadowgraph.patch.recipe import Recipe
from shadowgraph.patch.relocate import relocate
from shadowgraph.patch.sizes import JUMP_SIZE

__all__ = ["LONGEST_WINDOW", "RecipeBook"]

LONGEST_WINDOW = JUMP_SIZE - 1 + LONGEST_INSTRUCTION
# Windows of up to so many bytes are looked up by them before anything is decoded.
_PREFIX = 8


class RecipeBook:
    """``recipes`` only grows; functions know theirs by index. ``real_calls``: see relocate.py."""

    def __init__(self, recipes: Sequence[Recipe] = (), *, real_calls: bool = False) -> None:
        self.recipes = list(recipes)
        self._real_calls = real_calls
        self._known: dict[tuple[bytes, int, int], int] = {}
        self._by_prefix: dict[tuple[bytes, int], int] = {}
        self._sizes = np.zeros(1, np.int64)

    def sizes(self) -> npt.NDArray[np.int64]:
        """int64[recipes + 1]: displaced bytes of each recipe, and 0 at index −1."""
        if len(self._sizes) != len(self.recipes) + 1:
            self._sizes = np.array([recipe.displaced for recipe in self.recipes] + [0], np.int64)
        return self._sizes

    def window(self, code: bytes, entry: int) -> int | Reason:
        """Index of the recipe for the first whole instructions of ``code`` that cover a jump, or all of shorter code.

        ``code`` must end where the function does, or be at least LONGEST_WINDOW long; ``entry``: see :func:`relocate`.
        """
        prefix = (code[:_PREFIX], entry)
        found = self._by_prefix.get(prefix)
        if found is not None:
            return found
        steps = decode_steps(code, JUMP_SIZE)
        if not steps:
            return Reason.UNDECODABLE
        index = self.of(steps, entry)
        if not isinstance(index, Reason) and self.recipes[index].displaced <= _PREFIX <= len(code):
            self._by_prefix[prefix] = index
        return index

    def of(self, steps: list[Step], entry: int, overwritten: int = JUMP_SIZE) -> int | Reason:
        """Index of the recipe for these instructions, or why they cannot be moved."""
        if steps[-1].end < overwritten and not steps[-1].ends:
            return Reason.TOO_SHORT
        key = (b"".join(step.code for step in steps), entry, overwritten)
        found = self._known.get(key)
        if found is not None:
            return found
        recipe = relocate(steps, entry, overwritten, real_calls=self._real_calls)
        if isinstance(recipe, Reason):
            return recipe
        self.recipes.append(recipe)
        self._known[key] = len(self.recipes) - 1
        return self._known[key]
