"""What of a predicate is decided at the entry of a call, and what has to wait for its exit.

The parts of the outermost `and` that need nothing of the exit are the entry's. Of each other part, what is known at the
entry is computed there and kept: an argument's register has another value by the time of the exit. What cannot be
computed counts only if the exit comes to ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shadowgraph.agent import layout
from shadowgraph.ops.predicate_tree import (
    AllOf,
    Always,
    AnyOf,
    Condition,
    Constant,
    Kind,
    Not,
    OneOf,
    Relation,
    Step,
    TextTest,
    Value,
)

__all__ = ["Parts", "split"]


@dataclass(frozen=True)
class Parts:
    """The two halves.

    ``kept`` is what the entry computes for the exit, the first for saved word 1; conditions as 1 or 0.
    """

    entry: tuple[Condition, ...]
    exit: tuple[Condition, ...]
    kept: tuple[Value | Condition, ...]


def split(condition: Condition) -> Parts:
    """The parts of a predicate by the time when they can be decided."""
    terms = list(_terms(condition))
    keeper = _Keeper()
    late = tuple(keeper.condition(term) for term in terms if term.at_exit)
    return Parts(tuple(term for term in terms if not term.at_exit), late, tuple(keeper.kept))


def _terms(condition: Condition) -> Iterable[Condition]:
    """The parts of the outermost `and`."""
    if not isinstance(condition, AllOf):
        return [condition]
    return [term for part in condition.parts for term in _terms(part)]


class _Keeper:
    """Puts kept values in the place of what is known at the entry."""

    def __init__(self) -> None:
        self.kept: dict[Value | Condition, int] = {}

    def _keep(self, what: Value | Condition, kind: Kind) -> Step:
        index = self.kept.setdefault(what, len(self.kept) + 1)
        return Step(layout.PREDICATE_SAVED_VALUE, kind, index=index, late=True)

    def _value(self, value: Value) -> Value:
        if isinstance(value, Constant):
            return value
        if not value.at_exit:
            return self._keep(value, value.kind)
        operands = tuple(self._value(operand) for operand in value.operands)
        return Step(value.op, value.kind, operands, value.index, value.late)

    def condition(self, condition: Condition) -> Condition:
        """The same condition as the exit can decide it."""
        if isinstance(condition, Always):
            return condition
        if not condition.at_exit:
            kept = self._keep(condition, Kind.SIGNED)
            return Relation((kept, Constant(0)), (layout.PREDICATE_NE,), (False,))
        match condition:
            case Relation(operands=operands, ops=ops, swapped=swapped):
                return Relation(tuple(self._value(operand) for operand in operands), ops, swapped)
            case OneOf(operand=operand, numbers=numbers):
                return OneOf(self._value(operand), numbers)
            case TextTest(op=op, address=address, text=text, late=late):
                return TextTest(op, self._value(address), text, late)
            case Not(part=part):
                return Not(self.condition(part))
            case AllOf(parts=parts):
                return AllOf(tuple(map(self.condition, _grouped(parts, AllOf))))
            case AnyOf(parts=parts):
                return AnyOf(tuple(map(self.condition, _grouped(parts, AnyOf))))


def _grouped(parts: tuple[Condition, ...], kind: type[AllOf] | type[AnyOf]) -> list[Condition]:
    """Neighbours that the entry decides become one part: it takes one word to keep."""
    found: list[Condition] = []
    for part in parts:
        if not part.at_exit and found and not found[-1].at_exit:
            last = found.pop()
            before = last.parts if isinstance(last, kind) else (last,)
            found.append(kind((*before, part)))
        else:
            found.append(part)
    return found
