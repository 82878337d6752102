"""Predicates over calls (`when=`, `--when`): compiled once by the controller, evaluated in the target.

The language is described in docs/predicates.md, the programs in native/include/shadowgraph/predicate.h. A predicate is
read (:mod:`predicate_syntax`), understood (:mod:`predicate_meaning`), divided between entry and exit
(:mod:`predicate_split`) and written down as steps (:mod:`predicate_code`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from shadowgraph.agent import layout
from shadowgraph.ops.predicate_code import TooLong, entry_program, exit_program
from shadowgraph.ops.predicate_meaning import condition_of
from shadowgraph.ops.predicate_split import Parts, split
from shadowgraph.ops.predicate_syntax import parse
from shadowgraph.ops.predicate_tokens import Mistake

__all__ = ["Predicate", "check_predicate", "compile_predicate"]

_RESULTS = {layout.PREDICATE_RESULT, layout.PREDICATE_RESULT_HIGH, layout.PREDICATE_FLOAT_RESULT}
# For checking: a rate that makes the longest programs.
_SLOW_CLOCK = 333_333_333


@dataclass(frozen=True, slots=True)
class Predicate:
    """A compiled predicate: two programs (struct sg_predicate), and what they need.

    ``exit_code`` is empty if the entry decides alone. ``saved_words`` is how much of sg_predicate_input.saved they use:
    0, or 1 for each value that is kept and one more.
    """

    text: str
    entry_code: bytes
    exit_code: bytes
    saved_words: int

    @property
    def needs_exit(self) -> bool:
        """Whether it cannot be decided before the function returns."""
        return bool(self.exit_code)

    @property
    def needs_time(self) -> bool:
        """Whether the duration of the call must be known at its exit."""
        return layout.PREDICATE_TICKS in _fields(self.exit_code, 2)

    @property
    def needs_result(self) -> bool:
        """Whether the result must be known at the exit."""
        return bool(_RESULTS & _fields(self.exit_code, 0))

    @property
    def needs_vectors(self) -> bool:
        """Whether vector registers must be known at the entry."""
        return layout.PREDICATE_FLOAT_ARGUMENT in _fields(self.entry_code, 0)

    @property
    def always_enters(self) -> bool:
        """Whether the entry has nothing to decide and nothing to keep."""
        return not _fields(self.entry_code, 0)


def compile_predicate(text: str, ticks_per_second: float, option: str = "when") -> Predicate:
    """Compile a predicate for a target whose time stamps tick at this rate.

    UsageError, beginning with ``option``, with a mark below the place of a mistake.
    """
    try:
        tree = parse(text)
        parts = split(condition_of(tree))
        if len(parts.kept) >= layout.PREDICATE_SAVED:
            most = layout.PREDICATE_SAVED - 1
            sentence = f"this needs {len(parts.kept)} values of the entry at the exit, and {most} can be kept"
            raise Mistake(tree.start, tree.end, sentence)
        return _compiled(text, parts, ticks_per_second)
    except TooLong as error:
        most = layout.PREDICATE_WORDS
        sentence = f"the predicate is too long: it takes {error.words} of {most} words"
        raise Mistake(0, len(text), sentence).in_text(text, option) from None
    except Mistake as mistake:
        raise mistake.in_text(text, option) from None


def check_predicate(text: str, option: str = "when") -> None:
    """Raise what compile_predicate would, before there is a target."""
    compile_predicate(text, _SLOW_CLOCK, option)


def _compiled(text: str, parts: Parts, ticks_per_second: float) -> Predicate:
    entry = entry_program(parts, ticks_per_second)
    after = exit_program(parts, ticks_per_second) if parts.exit else b""
    return Predicate(text, entry, after, len(parts.kept) + 1 if parts.kept else 0)


def _fields(code: bytes, at: int) -> set[int]:
    """What stands in one byte of the steps of a program: 0 is the op, 2 is `left`."""
    steps = struct.unpack_from("<I", code)[0] if code else 0
    return set(code[8 + at : 8 + 8 * steps : 8])
