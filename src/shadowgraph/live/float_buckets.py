"""The cells of one function's histogram of floating-point values: which values a bucket holds, and what follows.

Eight buckets to each power of two, from 2⁻¹²⁸ to 2¹²⁸ and from −2¹²⁸ to −2⁻¹²⁸; zero has its own, what is no finite
number is counted apart (native/include/shadowgraph/users.h, native/agent/floats.c). A bucket is a range of sizes: of
values above 0 the lower end belongs to it, of those below 0 the end further from 0, so that it is always the left one.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout

__all__ = ["joined", "largest", "others", "outermost", "quantile", "spread", "total", "used"]

_PARTS = 1 << layout.BUCKET_BITS
_FIRST_POWER = layout.FLOAT_EXPONENT - 1023
_LAST = layout.FLOAT_BUCKETS - 1
_SIGN = 1 << 63
_SMALLEST = math.ulp(0.0)
_OTHERS = {
    "nan": layout.CELL_NAN,
    "plus_infinity": layout.CELL_INFINITY,
    "minus_infinity": layout.CELL_MINUS_INFINITY,
}

Row = npt.NDArray[np.uint64]
Bucket = tuple[float, float, int]


def used(row: Row) -> list[Bucket]:
    """``(low, high, count)`` of the buckets that are not empty, from the lowest values to the highest."""
    return [(*_bounds(bucket), count) for bucket, count in _counts(row)]


def spread(row: Row, most: int) -> list[Bucket]:
    """The same in about ``most`` steps, of some powers of two if need be; each gap between them is one, but at zero."""
    counts = _counts(row)
    found: list[Bucket] = []
    for width in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048):
        steps: dict[int, int] = {}
        for bucket, count in counts:
            steps[_step(bucket, width)] = steps.get(_step(bucket, width), 0) + count
        found = [(*_step_bounds(step, width), count) for step, count in steps.items()]
        if len(found) <= most:
            break
    gaps = [
        (one[1], other[0], 0)
        for one, other in itertools.pairwise(found)
        if one[1] < other[0] and 0.0 not in (one[0], other[0])
    ]
    return sorted(found + gaps)


def total(row: Row) -> float:
    """The sum of all finite values, as doubles add up."""
    return float(row[layout.CELL_SUM : layout.CELL_SUM + 1].view(np.float64)[0])


def largest(row: Row) -> float:
    """The largest of them; 0 if there are none."""
    order = int(row[layout.CELL_MAXIMUM])
    if not order:
        return 0.0
    bits = order ^ _SIGN if order & _SIGN else ~order & ((1 << 64) - 1)
    return float(np.array([bits], np.uint64).view(np.float64)[0])


def others(row: Row) -> dict[str, int]:
    """How many were no finite numbers: ``nan``, ``plus_infinity`` and ``minus_infinity``."""
    return {name: int(row[cell]) for name, cell in _OTHERS.items()}


def outermost(row: Row) -> int:
    """How many values are nearer to zero, or farther from it, than buckets are fine for."""
    return sum(count for bucket, count in _counts(row) if abs(bucket) in (1, _LAST + 1))


def quantile(known: list[Bucket], rank: float, most: float) -> float:
    """The value at a rank, spread evenly over its bucket; ``most`` is the largest there is."""
    before = 0
    for low, high, count in known:
        if before + count >= rank:
            if low == 0:
                return 0.0
            if low == -math.inf:  # no more is known than where they end
                return min(high, most)
            inside = (rank - before) / count
            return min(low + (min(high, most) - low) * inside, max(most, low))
        before += count
    return most


def joined(one: Row, other: Row) -> Row:
    """The cells of two functions, or of two threads, as if they were one."""
    both: Row = one + other
    both[layout.CELL_MAXIMUM] = max(one[layout.CELL_MAXIMUM], other[layout.CELL_MAXIMUM])
    at = slice(layout.CELL_SUM, layout.CELL_SUM + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        both[at] = (one[at].view(np.float64) + other[at].view(np.float64)).view(np.uint64)
    return both


def _counts(row: Row) -> list[tuple[int, int]]:
    """The buckets in use and what they hold: 1 and more above 0, 0 for zero, −1 and less below."""
    half, first = layout.FLOAT_BUCKETS, layout.PAGE_CELLS
    above, below = row[first : first + half], row[first + half : first + 2 * half]
    zeros = [(0, int(row[layout.CELL_ZEROS]))] if row[layout.CELL_ZEROS] else []
    found = [(-bucket - 1, int(below[bucket])) for bucket in reversed(np.flatnonzero(below).tolist())]
    return found + zeros + [(bucket + 1, int(above[bucket])) for bucket in np.flatnonzero(above).tolist()]


def _bounds(bucket: int) -> tuple[float, float]:
    """The values of a bucket: from the first to below the second."""
    return _step_bounds(_step(bucket, 1), 1)


def _step(bucket: int, width: int) -> int:
    """The number of the step that a bucket is in, where steps of ``width`` buckets begin with the smallest sizes."""
    size = (abs(bucket) - 1) // width + 1
    return size if bucket > 0 else -size if bucket < 0 else 0


def _step_bounds(step: int, width: int) -> tuple[float, float]:
    if step == 0:
        return 0.0, _SMALLEST
    first = (abs(step) - 1) * width
    if step > 0:
        return max(_size(first), _SMALLEST), _size(first + width)
    return -_size(first + width), 0.0 - _size(first)


def _size(bucket: int) -> float:
    """Where a bucket of values above 0 begins; the first has what is smaller, the last what is larger."""
    if bucket <= 0:
        return 0.0
    if bucket > _LAST:
        return math.inf
    power, part = divmod(bucket, _PARTS)
    return math.ldexp(_PARTS + part, _FIRST_POWER + power - layout.BUCKET_BITS)
