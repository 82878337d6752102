"""A plan in the making: what is known of each function so far. The steps that fill it in are modules of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from shadowgraph.image.reasons import Reason
from shadowgraph.patch.jumps import Jumps, confirmed, find_jumps, no_jumps
from shadowgraph.patch.owners import NOBODY, Owners
from shadowgraph.patch.recipe import Recipe
from shadowgraph.patch.recipes import RecipeBook
from shadowgraph.patch.references import References
from shadowgraph.patch.sizes import FIELD_SIZE
from shadowgraph.patch.text import Marks, Places, Text

if TYPE_CHECKING:
    from shadowgraph.image.functions import FunctionTable
    from shadowgraph.image.image import Image

__all__ = ["ENDBR64", "Draft", "Rows"]

Rows: TypeAlias = npt.NDArray[np.int64]

ENDBR64 = b"\xf3\x0f\x1e\xfa"


class FormerPlan(Protocol):
    """What a draft takes over of a plan (plan.ModulePlan) that was made of the same module before."""

    @property
    def reason(self) -> npt.NDArray[np.uint8]:
        """As in the plan."""

    @property
    def flags(self) -> npt.NDArray[np.uint16]:
        """As in the plan."""

    @property
    def recipe(self) -> npt.NDArray[np.int32]:
        """As in the plan."""

    @property
    def lender(self) -> npt.NDArray[np.int64]:
        """As in the plan."""

    @property
    def hole(self) -> npt.NDArray[np.uint64]:
        """As in the plan."""

    @property
    def overlap(self) -> npt.NDArray[np.int32]:
        """As in the plan."""

    @property
    def redirects(self) -> npt.NDArray[np.void]:
        """As in the plan."""

    @property
    def recipes(self) -> Sequence[Recipe]:
        """As in the plan."""


class Draft:
    """Columns over the rows of the function table; places, not addresses.

    ``start``, ``end``  the function; ``patch`` where it may be patched: behind `endbr64` if it begins with one, which
                        indirect branches need to find; −1 where there is no text
    ``reason``          uint8, :class:`Reason`; ``flags`` uint16, PlanFlag
    ``recipe``          int32, index into ``book``, −1 while there is none
    ``free``            int64, bytes from ``patch`` on that may be overwritten: up to the first one that is jumped to
    ``jumps_inside``    the confirmed jumps into the first bytes of rows; ``referenced`` the rows that tables lead into
    ``hole``, ``lender``  int64, see short_jumps.py; −1 where the jump is a plain one
    ``overlap``         int32, index into ``book``, see overlaps.py; −1 where there is none
    ``not_chosen``      bool, rows that are not to be planned; ``fixed`` those that an earlier plan has decided about

    ``led_places`` are those of the jumps that an earlier plan leads elsewhere: they must not be displaced.
    """

    def __init__(
        self,
        image: Image,
        functions: FunctionTable,
        only: Sequence[int] | npt.NDArray[np.integer] | None,
        previous: FormerPlan | None = None,
        *,
        real_calls: bool = False,
    ) -> None:
        self.image = image
        self.functions = functions
        self.text = Text(image)
        self.owners = Owners(self.text, functions)
        self.references = References(image, self.text, self.owners)
        self.book = RecipeBook(previous.recipes if previous is not None else (), real_calls=real_calls)
        count = len(functions)
        self.start = self.text.places(functions.start)
        self.end = self.start + np.minimum(functions.size.astype(np.int64), self.text.room(self.start))
        self.patch = np.where(self.start >= 0, _behind_endbr64(self.text, np.maximum(self.start, 0)), -1)
        self.reason = np.where(self.start < 0, np.uint8(Reason.NOT_CODE), np.uint8(0))
        self.reason = np.where(functions.refused != 0, functions.refused, self.reason).astype(np.uint8)
        self.not_chosen = np.zeros(count, np.bool_)
        if only is not None:
            self.not_chosen[:] = True
            self.not_chosen[np.asarray(only, np.int64)] = False
            self.reason[self.not_chosen] = Reason.NOT_CHOSEN
        self.flags = np.zeros(count, np.uint16)
        self.recipe = np.full(count, -1, np.int32)
        self.free = self.end - self.patch
        self.jumps_inside = no_jumps()
        self.referenced: set[int] = set()
        self.hole = np.full(count, -1, np.int64)
        self.lender = np.full(count, NOBODY, np.int64)
        self.overlap = np.full(count, -1, np.int32)
        self.fixed = np.zeros(count, np.bool_)
        self.led_places = np.zeros(0, np.int64)
        if previous is not None:
            self._take_over(previous)

    def _take_over(self, previous: FormerPlan) -> None:
        self.fixed = previous.reason != Reason.NOT_CHOSEN
        self.not_chosen &= ~self.fixed
        for mine, theirs in (
            (self.reason, previous.reason),
            (self.flags, previous.flags),
            (self.recipe, previous.recipe),
            (self.lender, previous.lender),
            (self.overlap, previous.overlap),
            (self.hole, np.where(previous.hole, previous.hole.astype(np.int64) - self.text.base, -1)),
        ):
            mine[self.fixed] = theirs[self.fixed]
        self.led_places = np.sort(previous.redirects["address"].astype(np.int64) - self.text.base)

    @property
    def hooked(self) -> Rows:
        """Rows that nothing speaks against so far."""
        return np.flatnonzero(self.reason == 0)

    @property
    def open(self) -> Rows:
        """Those of them that are still to be decided about."""
        return np.flatnonzero((self.reason == 0) & ~self.fixed)

    def is_led(self, places: Places, sizes: Places) -> npt.NDArray[np.bool_]:
        """Whether any of the ``sizes`` bytes from each place on belong to a jump that is led elsewhere."""
        first = np.searchsorted(self.led_places, places - FIELD_SIZE, side="right")
        last = np.searchsorted(self.led_places, places + sizes, side="left")
        return first < last

    def displaced(self, rows: Rows) -> Places:
        """How many bytes of each row's code are displaced; 0 without a recipe."""
        return self.book.sizes()[self.recipe[rows]]

    def code_of(self, row: int) -> bytes:
        """A function's bytes from its patch address to its end, or to where something else begins."""
        end = min(int(self.end[row]), int(self.owners.next_start(self.start[row : row + 1])[0]))
        return self.text.bytes_at(int(self.patch[row]), max(end - int(self.patch[row]), 0))

    def entry(self, row: int) -> int:
        """A function's first byte as a distance from its patch address: 0, or −4 behind `endbr64`."""
        return int(self.start[row] - self.patch[row])

    # --- who goes where ---

    def find(self, marks: Marks, wanted: Callable[[Jumps], npt.NDArray[np.bool_]] | None = None) -> Jumps:
        """All branches to marked places, and `lea` of them; ``wanted`` tells which are worth decoding around."""
        candidates = find_jumps(self.text, self.owners, marks)
        if wanted is not None:
            candidates = candidates.take(wanted(candidates))
        return candidates.take(confirmed(self.text, self.owners, candidates))

    def led_to(self, marks: Marks) -> Places:
        """Marked places that tables lead to."""
        found = [self.references.addresses(marks, in_tables=True), self.references.table_targets(marks)]
        return np.concatenate(found)

    def source_row(self, jumps: Jumps) -> Rows:
        """The function that each jump is part of, NOBODY for cold parts and unowned text."""
        return np.where(jumps.owner == NOBODY, NOBODY, self.owners.row[jumps.owner] if len(self.owners.row) else NOBODY)

    def row_within(self, rows: Rows, sizes: Places, places: Places) -> npt.NDArray[np.int64]:
        """Index into ``rows`` (sorted by patch address) of the one less than ``sizes`` behind whose patch address each
        place lies, the patch address itself excluded; NOBODY if there is none.
        """
        if not len(rows):
            return np.full(len(places), NOBODY)
        index = np.searchsorted(self.patch[rows], places, side="left") - 1
        return np.where((index >= 0) & (places < self.patch[rows][index] + sizes[index]), index, NOBODY)


def _behind_endbr64(text: Text, start: Places) -> Places:
    first = text.data[start[:, None] + np.arange(len(ENDBR64))]
    begins = (first == np.frombuffer(ENDBR64, np.uint8)).all(axis=1)
    return start + np.where(begins, len(ENDBR64), 0)
