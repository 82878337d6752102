"""What hatchling runs when a wheel is built or the project is installed editable: compiles the native parts.

The wheel carries two shared libraries that know nothing of Python (they are loaded into other programs, or by ctypes),
so it fits every Python version and is tied to the platform alone. An editable install gets them in the source folder,
where `make build` keeps them current.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface[Any]):
    """Found by hatchling in the file that pyproject.toml names."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say what the wheel is: platform-specific, with two files that git ignores."""
        native = _load_build(Path(self.root) / "native" / "build.py")
        try:
            for library in (native.AGENT, native.AGENT_BY_GS, native.COLUMNS):
                if native.build(library):
                    self.app.display_info(f"built {library.name}")
                build_data["artifacts"].append(f"/src/shadowgraph/_native/{library.name}")
        except native.BuildError as error:
            self.app.abort(f"shadowgraph: {error}")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-linux_x86_64"


def _load_build(path: Path) -> ModuleType:
    """native/build.py as a module; its folder is no package and not on the path."""
    spec = importlib.util.spec_from_file_location("shadowgraph_native_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module
