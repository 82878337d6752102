"""Where arguments and results are at a function's entry and return (System V ABI, AMD64 supplement, 3.2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shadowgraph.image.value_types import PassedAs, ValueType

__all__ = ["INTEGER_REGISTERS", "STACK", "VECTOR_REGISTERS", "Place", "place_arguments", "place_result"]

INTEGER_REGISTERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
VECTOR_REGISTERS = tuple(f"xmm{number}" for number in range(8))
STACK = "stack"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece of a value is: in a register, or on the stack.

    ``offset`` (stack only) counts in bytes from the return address at entry: 8 is the first stack argument. ``size`` is
    how many bytes of the value are there. A memory result is at the address in ``register``.
    """

    register: str
    size: int
    offset: int = 0


def place_arguments(parameters: Sequence[ValueType], result: ValueType) -> list[tuple[Place, ...] | None]:
    """For each parameter its places in the order of its bytes; () for an empty struct.

    A parameter that is passed by invisible reference has one place, which holds its address. From the first parameter
    of an unknown type on, nothing is known: None.
    """
    integers, vectors = list(INTEGER_REGISTERS), list(VECTOR_REGISTERS)
    if is_returned_in_memory(result):
        integers.pop(0)
    places, depth = list[tuple[Place, ...] | None](), 8
    for parameter in parameters:
        if parameter.size == 0:
            return places + [None] * (len(parameters) - len(places))
        found = _in_registers(parameter, integers, vectors)
        if found is None:
            alignment = max(parameter.alignment, 8)
            depth = (depth - 8 + alignment - 1) // alignment * alignment + 8
            found = (Place(STACK, parameter.size, depth),)
            depth += (parameter.size + 7) // 8 * 8
        places.append(found)
    return places


def place_result(result: ValueType) -> tuple[Place, ...]:
    """The places of the result at return; for a result in memory, rax with its address."""
    if is_returned_in_memory(result):
        return (Place("rax", 8),)
    if PassedAs.X87 in result.passed:
        # A complex number of this kind comes back in two registers of the x87 stack.
        return tuple(Place(f"st{number}", 16) for number in range(max(result.size // 16, 1)))
    return _in_registers(result, ["rax", "rdx"], ["xmm0", "xmm1"]) or ()


def is_returned_in_memory(result: ValueType) -> bool:
    """Whether the caller passes the address for the result, in rdi, before all arguments."""
    return result.by_reference or PassedAs.MEMORY in result.passed


def _in_registers(value: ValueType, integers: list[str], vectors: list[str]) -> tuple[Place, ...] | None:
    """Take what the value needs off the lists of free registers; None, and nothing taken, if it goes to the stack."""
    if PassedAs.MEMORY in value.passed or PassedAs.X87 in value.passed:
        return None
    needed = (value.passed.count(PassedAs.INTEGER), value.passed.count(PassedAs.SSE))
    if needed[0] > len(integers) or needed[1] > len(vectors):
        return None
    places, left = list[Place](), 8 if value.by_reference else value.size
    for passed in value.passed:
        size = min(left, 8)
        left -= size
        if passed == PassedAs.SSEUP:
            places[-1] = Place(places[-1].register, places[-1].size + size)
        elif passed == PassedAs.INTEGER:
            places.append(Place(integers.pop(0), size))
        elif passed == PassedAs.SSE:
            places.append(Place(vectors.pop(0), size))
    return tuple(places)
