"""Sets of numbers as arrays of int64 in order, none of them twice: those of numpy hash where sorting is faster."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["both", "distinct", "either", "one_alone", "without"]

_Numbers = npt.NDArray[np.int64]


def distinct(numbers: npt.NDArray[np.integer]) -> _Numbers:
    """Those of an array in order, each once."""
    taken = numbers.astype(np.int64)
    if len(taken) < 2:
        return taken
    new = np.ones(len(taken), np.bool_)
    np.not_equal(taken[1:], taken[:-1], out=new[1:])
    found: _Numbers = taken[new]
    return found


def either(one: _Numbers, other: _Numbers) -> _Numbers:
    """The numbers of both sets."""
    if not len(one) or not len(other):
        return one if len(one) else other
    return distinct(np.sort(np.concatenate([one, other]), kind="stable"))


def both(one: _Numbers, other: _Numbers) -> _Numbers:
    """The numbers that are in both."""
    return one[np.isin(one, other, assume_unique=True)]


def without(one: _Numbers, other: _Numbers) -> _Numbers:
    """The numbers of one set that are not in the other."""
    return one[~np.isin(one, other, assume_unique=True)] if len(other) else one


def one_alone(one: _Numbers, other: _Numbers) -> _Numbers:
    """The numbers that are in one of them alone."""
    return np.setxor1d(one, other, assume_unique=True)
