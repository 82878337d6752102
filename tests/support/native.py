"""native/build.py, which is no part of the package, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["ROOT", "load_build"]

ROOT = Path(__file__).resolve().parents[2]


def load_build(folder: Path = ROOT) -> ModuleType:
    """The native/build.py of a checkout."""
    spec = importlib.util.spec_from_file_location("native_build_under_test", folder / "native" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
