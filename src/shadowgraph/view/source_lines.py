"""Source lines of functions, looked up when a view shows them: reading debug information for all takes too long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from shadowgraph.errors import ShadowgraphError
from shadowgraph.image import open_image
from shadowgraph.image.lines import read_lines

__all__ = ["find_lines"]


def find_lines(functions: Iterable[tuple[int, str, int]], build_ids: dict[str, str]) -> dict[int, str]:
    """``file:line`` of functions given as (id, module path, image address), as far as debug information knows them.

    ``build_ids`` are those of the modules that were recorded: a file that has been built anew since tells nothing.
    """
    by_module: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for function, path, address in functions:
        by_module[path].append((function, address))
    found: dict[int, str] = {}
    for path, rows in by_module.items():
        try:
            image = open_image(path)
        except ShadowgraphError:
            continue
        if build_ids.get(path, image.build_id) != image.build_id:
            continue
        lines = read_lines(image).find(np.array([address for _, address in rows], np.uint64))
        found |= {function: f"{at.file}:{at.line}" for (function, _), at in zip(rows, lines, strict=True) if at}
    return found
