"""The native columns library, built from its sources when they are newer."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "src" / "shadowgraph" / "_native" / "columns.so"
OPTIONS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-Wl,-z,defs", "-fvisibility=hidden"]


def build_columns() -> None:
    """Compile native/columns if the library is missing or older than a source."""
    sources = sorted((ROOT / "native" / "columns").glob("*.c"))
    headers = [*(ROOT / "native" / "columns").glob("*.h"), *(ROOT / "native" / "include").rglob("*.h")]
    if LIBRARY.exists() and all(LIBRARY.stat().st_mtime >= path.stat().st_mtime for path in [*sources, *headers]):
        return
    LIBRARY.parent.mkdir(exist_ok=True)
    part = LIBRARY.with_suffix(".part")
    subprocess.run(["gcc", *OPTIONS, f"-I{ROOT}/native/include", "-o", part, *sources], check=True)
    part.replace(LIBRARY)
