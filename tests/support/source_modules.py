"""The modules of the package, as files to be read."""

from __future__ import annotations

from pathlib import Path

__all__ = ["MODULES", "ROOT", "layer_of"]

ROOT = Path(__file__).resolve().parents[2]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted((ROOT / "src").rglob("*.py"))}


def layer_of(module: str) -> str:
    """The layer of docs/architecture.md that a module belongs to; generated constants are one of their own."""
    return "layout" if module == "shadowgraph.agent.layout" else module.split(".")[1]
