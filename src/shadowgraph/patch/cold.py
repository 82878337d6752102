"""Cold parts among what only the unwind table speaks of.

A compiler splits the rarely run part off a function and gives it an unwind entry of its own. With a symbol its name
tells (`f.cold`), and where it is entered with a frame, so does the unwind entry. What is left are parts without a
name that are entered before the frame is built: they look like functions and are none. They are known by who goes
there: conditional jumps of other functions, to their start or into their middle, and nobody calls them, holds their
address, or loads it. A function that is reached by conditional tail calls alone would be taken for one too; compilers
write a tail call as an unconditional jump (clang at -Oz may not).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.jumps import JumpKind, Jumps
from shadowgraph.patch.owners import NOBODY, Owners
from shadowgraph.patch.references import addresses_in_data, immediates_in_code
from shadowgraph.patch.text import Text

if TYPE_CHECKING:
    from shadowgraph.image.image import Image

__all__ = ["cold_rows"]


def cold_rows(
    image: Image, text: Text, owners: Owners, nameless: npt.NDArray[np.int64], jumps: Jumps
) -> npt.NDArray[np.int64]:
    """Which of the rows ``nameless`` are cold parts. ``jumps`` must hold every confirmed jump and reference to them."""
    target = owners.rows_at(jumps.target)
    source = np.where(jumps.owner == NOBODY, NOBODY, owners.row[jumps.owner])
    start = np.zeros(int(max(owners.row.max(initial=0), nameless.max(initial=0))) + 1, np.int64)
    start[owners.row[owners.row != NOBODY]] = owners.start[owners.row != NOBODY]
    foreign = (target != NOBODY) & (source != target)
    entered = np.unique(target[foreign & (jumps.kind == JumpKind.CONDITIONAL)])
    used = (target != NOBODY) & (jumps.kind >= JumpKind.CALL)
    suspects = nameless[np.isin(nameless, entered) & ~np.isin(nameless, target[used])]
    marks = text.marks()
    marks[start[suspects]] = 1
    held = addresses_in_data(image, text, marks)
    if not image.is_pie:
        held = np.concatenate([held, immediates_in_code(text, marks)])
    return suspects[~np.isin(start[suspects], held)]
