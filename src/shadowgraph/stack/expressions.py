"""DWARF expressions as far as call-frame information uses them (DWARF 5, sections 2.5 and 6.4.2)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from shadowgraph.image.cfi import Cursor
from shadowgraph.stack.frame import Lost

__all__ = ["ReadWord", "evaluate"]

# Reads so many bytes of the thread's memory as an unsigned number; raises Lost where there is none.
ReadWord = Callable[[int, int], int]

_MASK = (1 << 64) - 1
_MOST_STEPS = 10_000  # a branch may lead backwards

_ADDRESS, _DEREF = 0x03, 0x06
_CONSTANTS = {0x08: (1, False), 0x09: (1, True), 0x0A: (2, False), 0x0B: (2, True)}
_CONSTANTS |= {0x0C: (4, False), 0x0D: (4, True), 0x0E: (8, False), 0x0F: (8, True)}
_CONSTANT_U, _CONSTANT_S = 0x10, 0x11
_DUP, _DROP, _OVER, _PICK, _SWAP, _ROT = 0x12, 0x13, 0x14, 0x15, 0x16, 0x17
_PLUS_CONSTANT, _SKIP, _BRANCH = 0x23, 0x2F, 0x28
_LITERAL, _REGISTER, _BASE_REGISTER = 0x30, 0x50, 0x70
_REGISTER_X, _BASE_REGISTER_X, _DEREF_SIZE, _NOP = 0x90, 0x92, 0x94, 0x96


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _divide(left: int, right: int) -> int:
    """Signed division that truncates towards zero, as C does."""
    left, right = _signed(left), _signed(right)
    if right == 0:
        raise Lost("its unwind expression divides by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: int, right: int) -> int:
    if right == 0:
        raise Lost("its unwind expression divides by zero")
    return left % right


def _compared(relation: Callable[[int, int], bool]) -> Callable[[int, int], int]:
    return lambda left, right: int(relation(_signed(left), _signed(right)))


# Each takes the second entry of the stack and the top; comparisons are signed (2.5.1.4, 2.5.1.5).
_BINARY: dict[int, Callable[[int, int], int]] = {
    0x1A: operator.and_,
    0x1B: _divide,
    0x1C: operator.sub,
    0x1D: _modulo,
    0x1E: operator.mul,
    0x21: operator.or_,
    0x22: operator.add,
    0x24: lambda left, right: left << right if right < 64 else 0,
    0x25: lambda left, right: left >> right if right < 64 else 0,
    0x26: lambda left, right: _signed(left) >> min(right, 63),
    0x27: operator.xor,
    0x29: _compared(operator.eq),
    0x2A: _compared(operator.ge),
    0x2B: _compared(operator.gt),
    0x2C: _compared(operator.le),
    0x2D: _compared(operator.lt),
    0x2E: _compared(operator.ne),
}
_UNARY: dict[int, Callable[[int], int]] = {
    0x19: lambda value: abs(_signed(value)),
    0x1F: lambda value: -value,
    0x20: lambda value: ~value,
}


def evaluate(code: bytes, registers: Mapping[int, int], read: ReadWord, initial: int | None = None) -> int:
    """The value that an expression leaves on top of its stack, which holds ``initial`` at the start if given.

    Raises Lost for anything that cannot be evaluated: unknown operations, unknown registers, unreadable memory.
    """
    machine = _Machine(code, registers, read, [] if initial is None else [initial])
    try:
        return machine.run()
    except (IndexError, ValueError):
        raise Lost("its unwind expression is damaged") from None


class _Machine:
    def __init__(self, code: bytes, registers: Mapping[int, int], read: ReadWord, stack: list[int]) -> None:
        self.cursor = Cursor(code)
        self.registers = registers
        self.read = read
        self.stack = stack

    def run(self) -> int:
        for _ in range(_MOST_STEPS):
            if not self.cursor:
                return self.stack[-1]
            self.step(self.cursor.byte())
        raise Lost("its unwind expression does not end")

    def step(self, operation: int) -> None:
        stack = self.stack
        if operation in _BINARY:
            top = stack.pop()
            stack[-1] = _BINARY[operation](stack[-1], top) & _MASK
        elif operation in _UNARY:
            stack[-1] = _UNARY[operation](stack[-1]) & _MASK
        elif _LITERAL <= operation < _REGISTER:
            stack.append(operation - _LITERAL)
        elif _REGISTER <= operation < _REGISTER_X or operation in (_BASE_REGISTER_X, _REGISTER_X):
            stack.append(self.register(operation))
        elif operation in (_DUP, _DROP, _OVER, _PICK, _SWAP, _ROT):
            self.shuffle(operation)
        elif operation in (_SKIP, _BRANCH):
            self.branch(operation)
        elif operation in (_DEREF, _DEREF_SIZE):
            stack[-1] = self.read(stack[-1], self.cursor.byte() if operation == _DEREF_SIZE else 8)
        elif operation == _PLUS_CONSTANT:
            stack[-1] = stack[-1] + self.cursor.uleb() & _MASK
        elif operation != _NOP:
            stack.append(self.constant(operation))

    def register(self, operation: int) -> int:
        """DW_OP_breg…: a register plus an offset; DW_OP_reg… is taken for its contents, as unwinders do."""
        if operation == _BASE_REGISTER_X:
            number, offset = self.cursor.uleb(), self.cursor.sleb()
        elif operation == _REGISTER_X:
            number, offset = self.cursor.uleb(), 0
        elif operation >= _BASE_REGISTER:
            number, offset = operation - _BASE_REGISTER, self.cursor.sleb()
        else:
            number, offset = operation - _REGISTER, 0
        if number not in self.registers:
            raise Lost(f"its unwind expression needs register {number}, whose value is not known there")
        return self.registers[number] + offset & _MASK

    def shuffle(self, operation: int) -> None:
        stack = self.stack
        if operation == _DUP:
            stack.append(stack[-1])
        elif operation == _DROP:
            stack.pop()
        elif operation == _OVER:
            stack.append(stack[-2])
        elif operation == _PICK:
            stack.append(stack[-1 - self.cursor.byte()])
        elif operation == _SWAP:
            stack[-1], stack[-2] = stack[-2], stack[-1]
        else:
            stack[-1], stack[-2], stack[-3] = stack[-2], stack[-3], stack[-1]

    def branch(self, operation: int) -> None:
        distance = self.cursor.unsigned(2)
        if operation == _SKIP or self.stack.pop():
            self.cursor.offset += distance - (1 << 16) if distance >> 15 else distance
            if self.cursor.offset < 0:
                raise IndexError

    def constant(self, operation: int) -> int:
        if operation in _CONSTANTS:
            width, is_signed = _CONSTANTS[operation]
            value = self.cursor.unsigned(width)
            return (value - (1 << 8 * width) if is_signed and value >> (8 * width - 1) else value) & _MASK
        if operation == _ADDRESS:
            return self.cursor.unsigned(8)
        if operation == _CONSTANT_U:
            return self.cursor.uleb() & _MASK
        if operation == _CONSTANT_S:
            return self.cursor.sleb() & _MASK
        raise Lost(f"its unwind expression has an operation that is not known here ({operation:#x})")
