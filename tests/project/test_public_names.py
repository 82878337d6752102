"""What a module offers is what its ``__all__`` says; modules of one layer may know more of each other."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_modules import MODULES, layer_of

GENERATED = {"shadowgraph.agent.layout"}


def names_taken(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) for each name, not a module, that a file imports from a module of ours."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for name in node.names:
                if f"{node.module}.{name.name}" not in MODULES:
                    yield node.module, name.name


def defines_anything(path: Path) -> bool:
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.ImportFrom)
    return any(
        isinstance(node, kinds) and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        for node in ast.parse(path.read_text()).body
    )


@pytest.mark.parametrize("module", sorted(set(MODULES) - GENERATED))
def test_a_module_offers_what_it_says_and_says_what_it_offers(module: str) -> None:
    if not defines_anything(MODULES[module]):
        return
    loaded = importlib.import_module(module)
    offered = getattr(loaded, "__all__", None)
    assert offered is not None, f"{module} has no __all__"
    assert len(offered) == len(set(offered))
    assert [name for name in offered if not hasattr(loaded, name)] == []
    assert [name for name in offered if name.startswith("_")] == []


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"shadowgraph"}))
def test_names_taken_from_another_layer_are_offered_there(module: str) -> None:
    hidden = [
        f"{name} of {other}"
        for other, name in names_taken(MODULES[module])
        if other not in GENERATED
        and layer_of(other) != layer_of(module)
        and name not in getattr(importlib.import_module(other), "__all__", [])
    ]
    assert not hidden
