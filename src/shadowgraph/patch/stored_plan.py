"""A plan as plain columns and back, for those who keep it in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from shadowgraph.image.lazily import Lazily
from shadowgraph.patch.module_plan import REDIRECT, ModulePlan
from shadowgraph.patch.recipe import CallForm, Fixup, FixupKind, Recipe, Row

__all__ = ["plan_columns", "plan_from"]

Columns = dict[str, npt.NDArray[np.generic]]

_ARRAYS = [field.name for field in fields(ModulePlan) if field.name not in ("path", "redirects", "recipes")]
_NO_CALL = -1


def plan_columns(plan: ModulePlan) -> Columns:
    """All of a plan but its path."""
    columns: Columns = {name: getattr(plan, name) for name in _ARRAYS}
    for name in REDIRECT.names or ():
        columns[f"redirect_{name}"] = np.ascontiguousarray(plan.redirects[name])
    return columns | _recipe_columns(plan.recipes)


def plan_from(path: str, columns: Columns) -> ModulePlan:
    """The plan that plan_columns() was given; recipes are made when they are asked for."""
    redirects = np.zeros(len(columns["redirect_row"]), REDIRECT)
    for name in REDIRECT.names or ():
        redirects[name] = columns[f"redirect_{name}"]
    arrays = {name: columns[name] for name in _ARRAYS}
    return ModulePlan(path=path, redirects=redirects, recipes=_recipes_from(columns), **arrays)  # type: ignore[arg-type]


def _recipe_columns(recipes: Sequence[Recipe]) -> Columns:
    """One row a recipe; ``ends`` are where its part of the bodies, fixups and rows ends."""
    fixups = [(fixup.field, fixup.end, fixup.target, fixup.kind) for recipe in recipes for fixup in recipe.fixups]
    rows = [(row.body, row.original, row.pushed, row.starts) for recipe in recipes for row in recipe.rows]
    sizes = [(len(recipe.body), len(recipe.fixups), len(recipe.rows)) for recipe in recipes]
    calls = [_NO_CALL if recipe.call is None else recipe.call for recipe in recipes]
    return {
        "recipe_displaced": np.array([recipe.displaced for recipe in recipes], np.int32),
        "recipe_call": np.array(calls, np.int8),
        "recipe_ends": np.cumsum(np.array(sizes, np.int64).reshape(-1, 3), axis=0),
        "recipe_bodies": np.frombuffer(b"".join(recipe.body for recipe in recipes), np.uint8),
        "recipe_fixups": np.array(fixups, np.int64).reshape(-1, 4),
        "recipe_rows": np.array(rows, np.int32).reshape(-1, 4),
    }


def _recipes_from(columns: Columns) -> Lazily[Recipe]:
    displaced, call, ends = columns["recipe_displaced"], columns["recipe_call"], columns["recipe_ends"]
    bodies, fixups, rows = columns["recipe_bodies"], columns["recipe_fixups"], columns["recipe_rows"]

    def recipe(index: int) -> Recipe:
        body, fixup, row = ends[index - 1].tolist() if index else (0, 0, 0)
        body_end, fixup_end, row_end = ends[index].tolist()
        form = int(call[index])
        return Recipe(
            displaced=int(displaced[index]),
            body=bodies[body:body_end].tobytes(),
            fixups=tuple(
                Fixup(field, end, target, FixupKind(kind))
                for field, end, target, kind in fixups[fixup:fixup_end].tolist()
            ),
            rows=tuple(
                Row(at, original, pushed, bool(starts)) for at, original, pushed, starts in rows[row:row_end].tolist()
            ),
            call=None if form == _NO_CALL else CallForm(form),
        )

    return Lazily(len(displaced), recipe)
