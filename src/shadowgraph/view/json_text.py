"""JSON as all commands print it: what is no finite number, for which JSON has no word, is a text."""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["json_text"]


def json_text(content: Any, *, indent: int | None = None) -> str:
    """``content`` as JSON, on one line unless it is to be indented.

    "NaN", "Infinity" and "-Infinity" as in the JSON of Protocol Buffers: float() in Python, Number() in JavaScript and
    their like read them, and null would not tell which of them it was.
    """
    try:
        return json.dumps(content, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:  # what is rare is looked for where it is
        return json.dumps(_finite(content), ensure_ascii=False, indent=indent)


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return "NaN" if math.isnan(content) else "Infinity" if content > 0 else "-Infinity"
    return content
