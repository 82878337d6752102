"""The slow and obvious twin of predicates: Python's own parser, Python's own numbers, nothing compiled.

It says what docs/predicates.md says. Where a predicate is refused, it has no opinion.
"""

from __future__ import annotations

import ast
import ctypes
import math
import struct
from dataclasses import dataclass
from fractions import Fraction

from tests.support.predicates import Call, Memory

__all__ = ["holds"]

WORD = 1 << 64


class Undecided(Exception):
    """A value that there is not: the predicate does not hold."""


@dataclass(frozen=True)
class Number:
    value: int | float
    unsigned: bool = False
    constant: bool = False


def holds(text: str, call: Call, memory: Memory, ticks_per_second: float = 1e9) -> bool:
    """Whether a predicate holds for a call, by its text."""
    try:
        return _Oracle(call, memory, ticks_per_second).truth(ast.parse(text.strip(), mode="eval").body)
    except Undecided:
        return False


def _signed(value: int) -> int:
    value %= WORD
    return value - WORD if value >= WORD // 2 else value


def _double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits % WORD))[0])


class _Oracle:
    def __init__(self, call: Call, memory: Memory, ticks_per_second: float) -> None:
        self.call, self.memory, self.rate = call, memory, ticks_per_second

    # --- conditions ---

    def truth(self, node: ast.expr) -> bool:
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                return all(self.truth(value) for value in values)
            case ast.BoolOp(values=values):
                return any(self.truth(value) for value in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.truth(operand)
            case ast.Constant(value=bool(value)):
                return value
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self.comparison(left, ops, others)
            case ast.Call(func=ast.Name(id="isnan"), args=[inner]):
                return math.isnan(self.number(inner).value)
            case ast.Call(func=ast.Name(id="startswith"), args=[string, ast.Constant(value=str(text))]):
                return self.begins(self.address(string), text.encode())
            case ast.Call(func=ast.Name(id="endswith"), args=[string, ast.Constant(value=str(text))]):
                return self.ends(self.address(string), text.encode())
            case ast.Call(func=ast.Name(id="after"), args=[inner]):
                return self.truth(inner)
        return self.number(node).value != 0

    def comparison(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> bool:
        if isinstance(ops[0], ast.In | ast.NotIn):
            assert isinstance(others[0], ast.Tuple)
            found = any(self.pair(left, ast.Eq(), item) for item in others[0].elts)
            return found == isinstance(ops[0], ast.In)
        for op, right in zip(ops, others, strict=True):
            if not self.pair(left, op, right):
                return False
            left = right
        return True

    def pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool:
        for string, text in ((left, right), (right, left)):
            if isinstance(string, ast.Call) and isinstance(string.func, ast.Name) and string.func.id == "str":
                assert isinstance(text, ast.Constant) and isinstance(text.value, str)
                equal = self.begins(self.address(string), text.value.encode() + b"\0")
                return equal == isinstance(op, ast.Eq)
        a, b = self.number(left).value, self.number(right).value
        match op:
            case ast.Eq():
                return a == b
            case ast.NotEq():
                return a != b
            case ast.Lt():
                return a < b
            case ast.LtE():
                return a <= b
            case ast.Gt():
                return a > b
        return a >= b

    # --- memory ---

    def address(self, string: ast.expr) -> int:
        assert isinstance(string, ast.Call)
        return int(self.number(string.args[0]).value) % WORD

    def byte(self, address: int) -> int:
        address %= WORD
        if not self.memory.holds(address):
            raise Undecided
        return ctypes.string_at(address, 1)[0]

    def begins(self, address: int, text: bytes) -> bool:
        return all(self.byte(address + at) == wanted for at, wanted in enumerate(text))

    def ends(self, address: int, text: bytes) -> bool:
        for length in range(4096):
            if self.byte(address + length) == 0:
                found = bytes(self.byte(address + at) for at in range(length))
                return found.endswith(text)
        return False

    # --- numbers ---

    def number(self, node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=str(text)):
                return Number(ord(text), constant=True)
            case ast.Constant(value=int(value) | float(value)):
                return Number(value, isinstance(value, int) and value >= WORD // 2, constant=True)
            case ast.Name(id=name):
                return self.named(name)
            case ast.UnaryOp(op=op, operand=operand):
                return self.sign(op, self.number(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return self.operation(op, self.number(left), self.number(right))
            case ast.Call(func=ast.Name(id=name), args=[inner]):
                return self.function(name, inner)
        raise AssertionError(ast.dump(node))

    def named(self, name: str) -> Number:
        call = self.call
        if name in ("result", "result_high", "fresult") and not call.returned:
            raise Undecided
        if name == "fresult":
            return Number(_double(call.fresult))
        if name == "duration":
            return Number(_signed(int(Fraction(call.ticks * 10**9) / Fraction(self.rate))))
        return Number(_signed(getattr(call, name)))

    def function(self, name: str, inner: ast.expr) -> Number:
        if name == "arg":
            place = int(self.number(inner).value)
            return Number(_signed([*self.call.integers, *self.call.stack][place]))
        if name == "farg":
            return Number(_double(self.call.floats[int(self.number(inner).value)]))
        if name == "f32":
            bits = struct.pack("<d", self.number(inner).value)
            if isinstance(inner, ast.Call):  # a NaN need not survive the way through a Python number
                assert isinstance(inner.args[0], ast.Constant)
                bits = struct.pack("<Q", self.call.floats[int(inner.args[0].value)])
            elif isinstance(inner, ast.Name):
                bits = struct.pack("<Q", self.call.fresult)
            return Number(float(struct.unpack("<f", bits[:4])[0]))
        if name == "after":
            return self.number(inner)
        if name.startswith("mem"):
            address, size = int(self.number(inner).value), int(name[3:]) // 8
            data = bytes(self.byte(address + at) for at in range(size))
            return Number(_signed(int.from_bytes(data, "little")))
        size = 1 << int(name[1:])
        value = int(self.number(inner).value) % size
        if name[0] == "i" and value >= size // 2:
            value -= size
        return Number(value, name == "u64")

    def sign(self, op: ast.unaryop, operand: Number) -> Number:
        value = operand.value
        if isinstance(op, ast.UAdd):
            return operand
        if isinstance(value, float):
            return Number(-value, constant=operand.constant)
        result = -value if isinstance(op, ast.USub) else ~value
        return self.fitted(result, operand.unsigned, operand.constant)

    def fitted(self, value: int, unsigned: bool, constant: bool) -> Number:
        if constant:
            return Number(value, value >= WORD // 2, True)
        return Number(value % WORD, True) if unsigned else Number(_signed(value))

    def operation(self, op: ast.operator, left: Number, right: Number) -> Number:
        constant = left.constant and right.constant
        shift = isinstance(op, ast.LShift | ast.RShift)
        unsigned = left.unsigned or (right.unsigned and not shift)
        a, b = left.value, right.value
        assert isinstance(a, int) and isinstance(b, int)
        if not constant:
            a = a % WORD if unsigned else _signed(a)
            if not shift:
                b = b % WORD if unsigned else _signed(b)
        return self.fitted(self.integer(op, a, b), unsigned, constant)

    def integer(self, op: ast.operator, a: int, b: int) -> int:
        match op:
            case ast.Add():
                return a + b
            case ast.Sub():
                return a - b
            case ast.Mult():
                return a * b
            case ast.BitAnd():
                return a & b
            case ast.BitOr():
                return a | b
            case ast.BitXor():
                return a ^ b
        if isinstance(op, ast.LShift | ast.RShift):
            if not 0 <= b < WORD // 2:
                raise Undecided
            return a << min(b, 64) if isinstance(op, ast.LShift) else a >> min(b, 64)
        if b == 0:
            raise Undecided
        return a // b if isinstance(op, ast.FloorDiv) else a % b
