"""The words of a predicate: names, numbers, times, texts and signs, each with the place for a mark below it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from shadowgraph.errors import UsageError
from shadowgraph.trace.times import NANOSECONDS

__all__ = ["Mistake", "Token", "tokens_of"]

_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "0": 0, "\\": 92, "'": 39, '"': 34}

_SPACE = re.compile(r"\s+")
_NAME = re.compile(r"[^\W\d]\w*")
_TAIL = re.compile(r"\w+")
_NUMBER = re.compile(
    r"(?P<based>0[xX][\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+)|"
    r"(?P<decimal>(?:\d[\d_]*)?\.\d[\d_]*|\d[\d_]*\.?)(?P<exponent>[eE][+-]?\d+)?"
)
_SIGN = re.compile(r"\*\*|//|<<|>>|<=|>=|==|!=|<>|&&|\|\||[-+*/%&|^~<>()=,!]")

# What other languages write, and what is meant by it.
_FOREIGN = {
    "&&": "'and' is written out",
    "||": "'or' is written out",
    "!": "'not' is written out",
    "=": "equality is written ==",
    "<>": "inequality is written !=",
    "/": "there is no division with a fraction; // divides whole numbers",
    "**": "there are no powers",
}


class Mistake(Exception):
    """What is wrong with a predicate, and from where to where."""

    def __init__(self, start: int, end: int, sentence: str) -> None:
        super().__init__(sentence)
        self.start, self.end, self.sentence = start, end, sentence

    def in_text(self, text: str, option: str) -> UsageError:
        """The same as an error that shows the line with a mark below the place."""
        first = text.rfind("\n", 0, self.start) + 1
        line = text[first:].partition("\n")[0].replace("\t", " ").rstrip()
        at = self.start - first
        width = max(1, min(self.end - first, len(line)) - at)
        return UsageError(f"{option}: {self.sentence}\n    {line}\n    {' ' * at}{'^' * width}")


@dataclass(frozen=True, slots=True)
class Token:
    """One word. ``kind`` is "name", "number", "text", "sign" or "end"; ``value`` what a number or text stands for."""

    kind: str
    text: str
    start: int
    end: int
    value: int | float | bytes = 0


def tokens_of(text: str) -> Iterator[Token]:
    """All words of a predicate, and one of kind "end" behind them."""
    at = 0
    while at < len(text):
        if space := _SPACE.match(text, at):
            at = space.end()
            continue
        token = _token(text, at)
        yield token
        at = token.end
    yield Token("end", "the end", len(text), len(text))


def _token(text: str, at: int) -> Token:
    if name := _NAME.match(text, at):
        return Token("name", name[0], at, name.end())
    if text[at] in "'\"":
        return _quoted(text, at)
    if number := _NUMBER.match(text, at):
        return _number(text, number)
    if sign := _SIGN.match(text, at):
        if sign[0] in _FOREIGN:
            raise Mistake(at, sign.end(), f"{sign[0]!r}: {_FOREIGN[sign[0]]}")
        return Token("sign", sign[0], at, sign.end())
    raise Mistake(at, at + 1, f"{text[at]!r} means nothing here")


def _number(text: str, match: re.Match[str]) -> Token:
    """A whole number, one with a fraction, or a time in nanoseconds."""
    start, end = match.span()
    tail = _TAIL.match(text, end)
    word = match[0] + (tail[0] if tail else "")
    stop = start + len(word)
    if "__" in word or word.endswith("_"):
        raise Mistake(start, stop, f"{word!r} is not a number")
    plain = match[0].replace("_", "")
    if match["based"]:
        if tail:
            raise Mistake(start, stop, f"{word!r} is not a number")
        return Token("number", word, start, stop, int(plain, 0))
    if tail:
        return Token("number", word, start, stop, _nanoseconds(plain, tail[0], word, start, stop))
    if match["exponent"] or "." in plain:
        return Token("number", word, start, stop, float(plain))
    if len(plain) > 1 and plain[0] == "0" and plain.strip("0"):
        raise Mistake(start, stop, f"octal numbers are written 0o{plain.lstrip('0')}")
    if len(plain) > 30:
        raise Mistake(start, stop, "this number does not fit into 64 bits")
    return Token("number", word, start, stop, int(plain))


def _nanoseconds(number: str, unit: str, word: str, start: int, stop: int) -> int:
    if unit not in NANOSECONDS:
        raise Mistake(start, stop, f"{word!r} is not a number; units of time are ns, us, ms, s, m and h")
    if len(number) > 30:
        raise Mistake(start, stop, "this number does not fit into 64 bits")
    if abs(int(number.lower().partition("e")[2] or 0)) > 30:
        raise Mistake(start, stop, "this time is not a number of nanoseconds that fits into 64 bits")
    time = Fraction(number) * NANOSECONDS[unit]
    if time.denominator != 1:
        raise Mistake(start, stop, f"{word} is not a whole number of nanoseconds")
    return int(time)


def _quoted(text: str, start: int) -> Token:
    """A text in quotes, single or double, as the bytes that it stands for (UTF-8)."""
    quote, value, at = text[start], bytearray(), start + 1
    while at < len(text) and text[at] not in (quote, "\n"):
        if text[at] != "\\":
            value += text[at].encode(errors="surrogateescape")
            at += 1
            continue
        byte = re.compile(r"\\x([\da-fA-F]{2})").match(text, at)
        if byte:
            value.append(int(byte[1], 16))
            at = byte.end()
        elif text[at + 1 : at + 2] in _ESCAPES:
            value.append(_ESCAPES[text[at + 1]])
            at += 2
        else:
            known = "\\n \\t \\r \\0 \\\\ \\' \\\" \\x41"
            raise Mistake(at, at + 2, f"this escape is not known; there are {known}")
    if text[at : at + 1] != quote:
        raise Mistake(start, at, f"the closing {quote} is missing")
    return Token("text", text[start : at + 1], start, at + 1, bytes(value))
