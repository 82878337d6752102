"""Cold parts among what only the unwind table speaks of.

A compiler splits the rarely run part off a function and gives it an unwind entry of its own. With a symbol its name
tells (`f.cold`), and where it is entered with a frame, so does the unwind entry. What is left are parts without a
name that are entered before the frame is built: they look like functions and are none. They are known by who goes
there: conditional jumps of other functions, to their start or into their middle, and nobody calls them, holds their
address, or loads it. A function that is reached by conditional tail calls alone would be taken for one too; compilers
write a tail call as an unconditional jump (clang at -Oz may not).
"""

from __future__ import annotations

import numpy as np

from shadowgraph.patch.draft import Draft, Rows
from shadowgraph.patch.jumps import JumpKind, Jumps
from shadowgraph.patch.owners import NOBODY

__all__ = ["cold_rows"]


def cold_rows(draft: Draft, nameless: Rows, jumps: Jumps) -> Rows:
    """Which of the rows ``nameless`` are cold parts. ``jumps`` must hold every confirmed jump and reference to them."""
    target, source = draft.owners.rows_at(jumps.target), draft.source_row(jumps)
    foreign = (target != NOBODY) & (source != target)
    entered = np.unique(target[foreign & (jumps.kind == JumpKind.CONDITIONAL)])
    used = (target != NOBODY) & (jumps.kind >= JumpKind.CALL)
    suspects = nameless[np.isin(nameless, entered) & ~np.isin(nameless, target[used])]
    marks = draft.text.marks()
    marks[draft.start[suspects]] = 1
    held = draft.references.addresses(marks, in_tables=False)
    if not draft.image.is_pie:
        held = np.concatenate([held, draft.references.immediates(marks)])
    return suspects[~np.isin(draft.start[suspects], held)]
