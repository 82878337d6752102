"""Imports go one way, and the same way as docs/architecture.md says."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_modules import MODULES, ROOT, layer_of

# Each layer and what it may import besides itself. The order is the direction: everything named stands above.
# `layout` is shadowgraph.agent.layout, the constants that are generated from the C headers; whoever reads records needs
# it, and it imports nothing of ours. image and patch never touch a process; trace, analysis, view and export know
# traces alone, so that a trace can be read where nothing can be traced.
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "layout": set(),
    "image": {"errors"},
    "patch": {"errors", "image"},
    "target": {"errors", "image"},
    "agent": {"errors", "layout", "image", "patch", "target"},
    "trace": {"errors", "layout"},
    "ops": {"errors", "layout", "image", "patch", "target", "agent", "trace"},
    "stack": {"errors", "layout", "image", "patch", "target", "agent", "ops"},
    "live": {"errors", "layout", "image", "patch", "target", "agent", "trace", "ops", "stack"},
    "analysis": {"errors", "layout", "trace"},
    "view": {"errors", "image", "trace", "analysis"},
    "export": {"errors", "image", "trace", "analysis"},
    "cli": {
        *("errors", "layout", "image", "patch", "target", "agent"),
        *("trace", "ops", "stack", "live", "analysis", "view", "export"),
    },
}

# What native code may include besides the headers of its own folder and the shared ones.
FREESTANDING = {"stdint.h", "stddef.h"}


def imports_of(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports, at any depth of it, those for type checking included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"{path}: imports are written out"
            for name in node.names:
                submodule = f"{node.module}.{name.name}"
                if submodule in MODULES:
                    yield submodule
                elif node.module in MODULES:
                    yield node.module


IMPORTS = {module: sorted(set(imports_of(path))) for module, path in MODULES.items()}


def test_the_table_of_layers_goes_one_way() -> None:
    names = list(LAYERS)
    for position, (layer, below) in enumerate(LAYERS.items()):
        assert below <= set(names[:position]), f"{layer} imports what stands below it in the table"


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_the_table_allows(layer: str) -> None:
    wrong = [
        f"{module} imports {imported}"
        for module in MODULES
        if module != "shadowgraph" and layer_of(module) == layer
        for imported in IMPORTS[module]
        if imported == "shadowgraph" or layer_of(imported) not in LAYERS[layer] | {layer}
    ]
    assert not wrong


def test_every_module_belongs_to_a_layer() -> None:
    assert not [module for module in MODULES if module != "shadowgraph" and layer_of(module) not in LAYERS]


def test_no_module_leads_back_to_itself() -> None:
    graph = {module: set(imported) - {module} for module, imported in IMPORTS.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"these import each other: {' -> '.join(error.args[1])}")


def test_the_architecture_page_has_the_same_table() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("\n## Layers\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", text, re.M)
    documented = {layer: set(re.findall(r"`(\w+)`", allowed)) for layer, allowed in rows}
    assert list(documented) == list(LAYERS)
    assert documented | {"cli": LAYERS["cli"]} == LAYERS, "cli may import everything; the others as in the table"


def includes_of(path: Path) -> Iterator[str]:
    yield from re.findall(r'^#\s*include\s+[<"]([^>"]+)[>"]', path.read_text(), re.M)


@pytest.mark.parametrize("folder", ["agent", "columns"])
def test_native_code_includes_its_own_headers_and_the_shared_ones(folder: str) -> None:
    sources = [path for path in (ROOT / "native" / folder).iterdir() if path.suffix in (".c", ".h", ".S")]
    shared = {f"shadowgraph/{path.name}" for path in (ROOT / "native" / "include" / "shadowgraph").glob("*.h")}
    shared.add("shadowgraph/ops.h")  # what users' handlers are written against
    own = {path.name for path in sources}
    for path in sources:
        strangers = set(includes_of(path)) - own - shared - FREESTANDING
        if folder == "agent":
            assert not strangers, f"{path.name}: the agent has no C library and no friends"
        else:
            assert not any("/" in name or not name.endswith(".h") for name in strangers), path.name
