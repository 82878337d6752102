"""The form of a predicate: Python's expressions, as far as predicates have them, read into a tree with places.

What the parts mean, and whether they go together, is :mod:`shadowgraph.ops.predicate_meaning`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shadowgraph.ops.predicate_tokens import Mistake, Token, tokens_of

__all__ = [
    "Arithmetic",
    "Call",
    "Comparison",
    "Listing",
    "Literal",
    "Logic",
    "Name",
    "Negation",
    "Sign",
    "Syntax",
    "parse",
]

# Python's, weakest first (The Python Language Reference, 6.17); all of them group from left to right.
_ARITHMETIC = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "//", "%"))
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_DEEPEST, _DEEPEST_CHAIN = 25, 100  # what Python's own stack takes with ease
_WORDS = {"and", "or", "not", "in", "is", "if", "else", "lambda"}


@dataclass(frozen=True, slots=True)
class Syntax:
    """A part of a predicate, from ``start`` to before ``end`` in its text; ``depth`` parts lie in one another."""

    start: int
    end: int
    depth: int


@dataclass(frozen=True, slots=True)
class Literal(Syntax):
    """A number or a text."""

    value: int | float | bytes


@dataclass(frozen=True, slots=True)
class Name(Syntax):
    """A value that has a name."""

    name: str


@dataclass(frozen=True, slots=True)
class Call(Syntax):
    """A function and what it is given."""

    name: str
    arguments: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Sign(Syntax):
    """One of + - ~ before a value."""

    sign: str
    operand: Syntax


@dataclass(frozen=True, slots=True)
class Arithmetic(Syntax):
    """A sign between two values."""

    sign: str
    left: Syntax
    right: Syntax


@dataclass(frozen=True, slots=True)
class Comparison(Syntax):
    """a < b <= c: each sign stands between two neighbours. "in" and "not in" are among the signs."""

    operands: tuple[Syntax, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Logic(Syntax):
    """Parts joined by "and", or by "or"."""

    word: str
    operands: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Negation(Syntax):
    """not x."""

    operand: Syntax


@dataclass(frozen=True, slots=True)
class Listing(Syntax):
    """What stands in parentheses behind "in"."""

    items: tuple[Syntax, ...]


def parse(text: str) -> Syntax:
    """The tree of a predicate. Raises Mistake."""
    if not text.strip():
        raise Mistake(0, 1, "the predicate is empty")
    parser = _Parser(list(tokens_of(text)))
    found = parser.either()
    parser.expect_end()
    return found


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._nesting = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> Token | None:
        token = self._next
        if token.kind in ("name", "sign") and token.text in texts:
            self._at += 1
            return token
        return None

    def _deeper(self, start: int, *parts: Syntax) -> int:
        """The depth of something around parts."""
        depth = max((part.depth for part in parts), default=0) + 1
        if depth > _DEEPEST_CHAIN:
            raise Mistake(start, self._next.end, "this is nested too deeply")
        return depth

    def expect_end(self) -> None:
        token = self._next
        if token.kind == "end":
            return
        if token.text == ")":
            raise Mistake(token.start, token.end, "this parenthesis closes nothing")
        if token.text == "is":
            raise Mistake(token.start, token.end, "equality is written ==")
        raise Mistake(token.start, token.end, f"an operator is missing before {token.text!r}")

    def either(self) -> Syntax:
        return self._logic("or", self._both)

    def _both(self) -> Syntax:
        return self._logic("and", self._negation)

    def _logic(self, word: str, part: Callable[[], Syntax]) -> Syntax:
        operands = [part()]
        while self._take(word):
            operands.append(part())
        if len(operands) == 1:
            return operands[0]
        first, last = operands[0], operands[-1]
        return Logic(first.start, last.end, self._deeper(first.start, *operands), word, tuple(operands))

    def _negation(self) -> Syntax:
        token = self._take("not")
        if not token:
            return self._comparison()
        self._nest(token)
        operand = self._negation()
        self._nesting -= 1
        return Negation(token.start, operand.end, self._deeper(token.start, operand), operand)

    def _nest(self, token: Token) -> None:
        self._nesting += 1
        if self._nesting > _DEEPEST:
            raise Mistake(token.start, token.end, "this is nested too deeply")

    def _comparison(self) -> Syntax:
        operands, signs = [self._arithmetic(0)], []
        while sign := self._comparison_sign():
            signs.append(sign)
            operands.append(self._listing() if sign.endswith("in") else self._arithmetic(0))
        if not signs:
            return operands[0]
        start, end = operands[0].start, operands[-1].end
        if len(signs) > 1 and any(sign.endswith("in") for sign in signs):
            raise Mistake(start, end, "'in' cannot be part of a chain; join two comparisons with 'and'")
        return Comparison(start, end, self._deeper(start, *operands), tuple(operands), tuple(signs))

    def _comparison_sign(self) -> str:
        if token := self._take(*_COMPARISONS, "in"):
            return token.text
        following = self._tokens[self._at + 1 : self._at + 2]
        if self._next.text == "not" and following and following[0].text == "in":
            self._at += 2
            return "not in"
        return ""

    def _listing(self) -> Syntax:
        opening = self._take("(")
        if not opening:
            raise Mistake(self._next.start, self._next.end, "a list in parentheses is missing here, like (1, 2, 3)")
        items, closing = self._items(opening)
        if not items:
            raise Mistake(opening.start, closing.end, "this list is empty")
        return Listing(opening.start, closing.end, self._deeper(opening.start, *items), items)

    def _items(self, opening: Token) -> tuple[tuple[Syntax, ...], Token]:
        """What is separated by commas, to the closing parenthesis."""
        self._nest(opening)
        items: list[Syntax] = []
        while not (closing := self._take(")")):
            items.append(self.either())
            if not self._take(",") and self._next.text != ")":
                raise self._unclosed(opening)
        self._nesting -= 1
        return tuple(items), closing

    def _unclosed(self, opening: Token) -> Mistake:
        if self._next.kind == "end":
            return Mistake(opening.start, opening.end, "this parenthesis is never closed")
        return Mistake(self._next.start, self._next.end, f"an operator is missing before {self._next.text!r}")

    def _arithmetic(self, level: int) -> Syntax:
        if level == len(_ARITHMETIC):
            return self._signed()
        left = self._arithmetic(level + 1)
        while token := self._take(*_ARITHMETIC[level]):
            right = self._arithmetic(level + 1)
            depth = self._deeper(left.start, left, right)
            left = Arithmetic(left.start, right.end, depth, token.text, left, right)
        return left

    def _signed(self) -> Syntax:
        token = self._take("-", "+", "~")
        if not token:
            return self._atom()
        self._nest(token)
        operand = self._signed()
        self._nesting -= 1
        return Sign(token.start, operand.end, self._deeper(token.start, operand), token.text, operand)

    def _atom(self) -> Syntax:
        token = self._next
        self._at += 1
        if token.kind in ("number", "text"):
            return Literal(token.start, token.end, 1, token.value)
        if token.kind == "name" and token.text not in _WORDS:
            return self._named(token)
        if token.text == "(" and token.kind == "sign":
            return self._parenthesised(token)
        self._at -= 1
        before = "here" if token.kind == "end" else f"before {token.text!r}"
        raise Mistake(token.start, token.end, f"a value is missing {before}")

    def _named(self, token: Token) -> Syntax:
        opening = self._take("(")
        if not opening:
            return Name(token.start, token.end, 1, token.text)
        arguments, closing = self._items(opening)
        return Call(token.start, closing.end, self._deeper(token.start, *arguments), token.text, arguments)

    def _parenthesised(self, opening: Token) -> Syntax:
        self._nest(opening)
        found = self.either()
        self._nesting -= 1
        if self._take(")"):
            return found
        if self._next.text == ",":
            raise Mistake(self._next.start, self._next.end, "a list can only stand behind 'in'")
        raise self._unclosed(opening)
