"""The cells of one function's histogram: which values a bucket holds, and what follows from how many each has.

Sixteen buckets for the values 0 to 15, then eight to each power of two. Of values that may be negative there are two
such sets of cells; the second has ~value of those below 0 (native/include/shadowgraph/users.h).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout

__all__ = ["largest", "quantile", "spread", "total", "used"]

_PARTS = 1 << layout.BUCKET_BITS
_EXACT = 2 * _PARTS  # values below have a bucket each
_HALF = layout.HISTOGRAM_CELLS
_WORD = 1 << 64

Row = npt.NDArray[np.uint64]
Bucket = tuple[int, int, int]


def used(row: Row) -> list[Bucket]:
    """``(low, high, count)`` of the buckets that are not empty, from the lowest values to the highest."""
    return [(*_bounds(bucket), count) for bucket, count in _counts(row)]


def spread(row: Row, most: int) -> list[Bucket]:
    """The same without gaps. Neighbours are joined, at most all of a power of two, to make no more than ``most``."""
    counts = _counts(row)
    if not counts:
        return []
    first, last = counts[0][0], counts[-1][0]
    bits = next(
        (bits for bits in range(layout.BUCKET_BITS) if (last >> bits) - (first >> bits) < most), layout.BUCKET_BITS
    )
    sums = dict.fromkeys(range(first >> bits, (last >> bits) + 1), 0)
    for bucket, count in counts:
        sums[bucket >> bits] += count
    ends = {step: (_bounds(step << bits)[0], _bounds(((step + 1) << bits) - 1)[1]) for step in sums}
    return [(*ends[step], count) for step, count in sums.items()]


def total(row: Row) -> int:
    """The sum of all values. The cell has its low 64 bits; the buckets tell about how large it is."""
    found = 0
    for half, sign in _halves(row):
        counts = half[layout.CELL_BUCKETS :]
        known, about = int(half[layout.CELL_SUM]), 0
        for bucket in np.flatnonzero(counts).tolist():
            low, high = _bounds(bucket)
            about += (low + high - 1) * int(counts[bucket]) // 2
        exact = known + round((about - known) / _WORD) * _WORD
        found += exact if sign > 0 else -exact - int(counts.sum())
    return found


def largest(row: Row) -> int:
    """The largest value; where all are negative, the largest that it may be."""
    not_negative = row[:_HALF]
    if not_negative[layout.CELL_COUNT] or not _counts(row):
        return int(not_negative[layout.CELL_MAXIMUM])
    return _bounds(_counts(row)[-1][0])[1] - 1


def quantile(known: list[Bucket], rank: float, most: int) -> float:
    """The value at a rank, spread evenly over its bucket; ``most`` is the largest there is."""
    before = 0
    for low, high, count in known:
        if before + count >= rank:
            inside = (rank - before) / count
            return min(low + (high - 1 - low) * inside, max(most, low))
        before += count
    return most


def _halves(row: Row) -> list[tuple[Row, int]]:
    return [(row[:_HALF], 1)] if len(row) <= _HALF else [(row[:_HALF], 1), (row[_HALF:], -1)]


def _counts(row: Row) -> list[tuple[int, int]]:
    """The buckets in use and what they hold; those of negative values have the numbers −1, −2 and so on downwards."""
    found = []
    for half, sign in _halves(row):
        counts = half[layout.CELL_BUCKETS :]
        found += [(b if sign > 0 else ~b, int(counts[b])) for b in np.flatnonzero(counts).tolist()]
    return sorted(found)


def _bounds(bucket: int) -> tuple[int, int]:
    """The values of a bucket: from the first to below the second."""
    if bucket < 0:
        low, high = _bounds(~bucket)
        return -high, -low
    if bucket < _EXACT:
        return bucket, bucket + 1
    power, part = divmod(bucket, _PARTS)
    return (_PARTS + part) << (power - 1), (_PARTS + part + 1) << (power - 1)
