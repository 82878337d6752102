"""What is wrong with a predicate is said in one sentence, with a mark below the place."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowgraph.errors import UsageError
from shadowgraph.ops.predicates import check_predicate, compile_predicate
from tests.support.native import ROOT

# Each mistake below its predicate, as it is shown; the sentence, or its beginning.
MISTAKES = """
arg(0) = 1
       ^ '=': equality is written ==
arg(0) == 1 && arg(1)
            ^^ '&&': 'and' is written out
result == 1 || result == 2
            ^^ '||': 'or' is written out
!result
^ '!': 'not' is written out
result <> 1
       ^^ '<>': inequality is written !=
arg(0) / 2 == 1
       ^ '/': there is no division with a fraction; // divides whole numbers
arg(0) ** 2 == 1
       ^^ '**': there are no powers
arg(0) == 1; 2
           ^ ';' means nothing here
arg[0] == 1
   ^ '[' means nothing here
agr(0) == 1
^^^ 'agr' is not known; did you mean arg?
arg0 == 1
^^^^ 'arg0' is not known; did you mean arg(0)?
1 < farg12
    ^^^^^^ 'farg12' is not known; did you mean farg(12)?
resulta == 1
^^^^^^^ 'resulta' is not known; did you mean result?
zzz == 1
^^^ 'zzz' is not known; there are result, result_high, fresult, duration, depth, thread, pid, inf, arg, farg
arg == 1
^^^ arg is a function: arg(0)
result(0) == 1
^^^^^^^^^ result is not a function: write it without parentheses
arg() == 1
   ^^ arg() takes one value: arg(0)
arg(0, 1) == 1
   ^^^^^^ arg() takes one value: arg(0)
startswith(str(arg(0)))
          ^^^^^^^^^^^^^ startswith() takes two: startswith(str(arg(0)), "/etc/")
arg(64) == 1
    ^^ integer arguments are arg(0) to arg(63)
arg(-1) == 1
    ^^ integer arguments are arg(0) to arg(63)
farg(8) > 1.0
     ^ floating-point arguments in registers are farg(0) to farg(7)
arg(arg(0)) == 1
    ^^^^^^ which argument it is has to be a plain number: arg(0)
arg(1.5) == 1
    ^^^ which argument it is has to be a plain number: arg(0)
arg(0) ==
         ^ a value is missing here
arg(0) == == 1
          ^^ a value is missing before '=='
and arg(0)
^^^ a value is missing before 'and'
arg(0) arg(1)
       ^^^ an operator is missing before 'arg'
arg(0) is 1
       ^^ equality is written ==
(arg(0) == 1
^ this parenthesis is never closed
arg(0 == 1
   ^ this parenthesis is never closed
arg(0)) == 1
      ^ this parenthesis closes nothing
(arg(0) 1)
        ^ an operator is missing before '1'
(1, 2) == arg(0)
  ^ a list can only stand behind 'in'
arg(0) in 1
          ^ a list in parentheses is missing here, like (1, 2, 3)
arg(0) in ()
          ^^ this list is empty
arg(0) in (1, arg(1))
              ^^^^^^ only constants can stand in this list
arg(0) in (1, 2) == 1
^^^^^^^^^^^^^^^^^^^^^ 'in' cannot be part of a chain; join two comparisons with 'and'
fresult in (1, 2)
^^^^^^^ 'in' is for whole numbers and strings
duration > 10sec
           ^^^^^ '10sec' is not a number; units of time are ns, us, ms, s, m and h
duration > 1.5ns
           ^^^^^ 1.5ns is not a whole number of nanoseconds
duration > 1e99s
           ^^^^^ this time is not a number of nanoseconds that fits into 64 bits
arg(0) == 0x1fz
          ^^^^^ '0x1fz' is not a number
arg(0) == 0b12
          ^^^^ '0b12' is not a number
arg(0) == 010
          ^^^ octal numbers are written 0o10
arg(0) == 1__0
          ^^^^ '1__0' is not a number
arg(0) == 18446744073709551616
          ^^^^^^^^^^^^^^^^^^^^ this number does not fit into 64 bits
arg(0) == 1 << 64
          ^^^^^^^ this number does not fit into 64 bits
arg(0) << 65
          ^^ a shift is by 0 to 64 bits
arg(0) >> -1
          ^^ a shift is by 0 to 64 bits
arg(0) // 0 == 1
          ^ this is a division by zero
arg(0) % (2 - 2) == 1
          ^^^^^ this is a division by zero
str(arg(0)) == "abc
               ^^^^ the closing " is missing
str(arg(0)) == "a\\qc"
                 ^^ this escape is not known; there are \\n \\t
str(arg(0)) == "a\\0"
               ^^^^^ a string ends at its first zero byte, so it has none
str(arg(0))
^^^^^^^^^^^ a string alone is no condition; compare it, as in str(arg(0)) == "abc"
str(arg(0)) > "abc"
^^^^^^^^^^^^^^^^^^^ strings can be compared with == and != alone
str(arg(0)) == arg(1)
               ^^^^^^ a string is compared with a text in quotes
str(arg(0)) == str(arg(1))
               ^^^^^^^^^^^ a string is compared with a text in quotes
str(farg(0)) == "abc"
    ^^^^^^^ an address is wanted here, and this is a floating-point number
startswith(arg(0), "abc")
           ^^^^^^ a string is wanted here, like str(arg(0))
arg(0) == "abc"
          ^^^^^ a number is compared here with a text; a string in memory is str(
"abc"
^^^^^ a text alone is no condition
"abc" == "abc"
^^^^^^^^^^^^^^ two texts are compared here, and nothing of the call
arg(0) + "abc" == 1
         ^^^^^ a number is wanted here; only a text of one byte stands for one
arg(0) + (arg(1) == 2) == 3
          ^^^^^^^^^^^ a number is wanted here, and this is true or false
(arg(0) == 1) == (arg(1) == 2)
 ^^^^^^^^^^^ a number is compared here with true or false
u8(str(arg(0))) == 1
   ^^^^^^^^^^^ a number is wanted here, and this is a string
u8(farg(0)) == 1
   ^^^^^^^ u8() is for whole numbers, and this is a floating-point number
f32(arg(0)) > 1.0
    ^^^^^^ f32() is for farg(n) and fresult, where they are of type float
f64(result) > 1.0
    ^^^^^^ f64() is for farg(n) and fresult, where they are of type double, as they are by themselves
isnan(result)
      ^^^^^^ isnan() is for floating-point numbers, and this is a whole one
farg(0) + 1.0 > 2.0
^^^^^^^^^^^^^ floating-point numbers can be compared, and not calculated with
~farg(0) > 1.0
^^^^^^^^ a floating-point number has no bits to be turned
farg(0) > 1.5 // 2.0
          ^^^^^^^^^^ // is for whole numbers
farg(0) > arg(0)
          ^^^^^^ a floating-point number can only be compared with its like or with a constant
farg(0) > 9007199254740993
          ^^^^^^^^^^^^^^^^ no floating-point number is exactly this one
result > 1.5
         ^^^ what it is compared with is a whole number
u8(arg(0)) == 300
              ^^^ this can never be equal: the other side is between 0 and 255
i32(result) == 0xffffffff
               ^^^^^^^^^^ this can never be equal: the other side is between -2147483648 and 2147483647
u64(result) == -1
               ^^ this can never be equal: the other side is an unsigned number of 64 bits
result == 0xffffffffffffffff
          ^^^^^^^^^^^^^^^^^^ this can never be equal: the other side is a signed number of 64 bits
mem8(arg(0)) in (1, 256)
                    ^^^ this can never be equal: the other side is between 0 and 255
after(arg(0)) == 1
      ^^^^^^ after() is for what is read from memory, and nothing is here
after(str(arg(0))) == "abc"
      ^^^^^^^^^^^ put the whole comparison into after(): after(str(arg(0)) == "abc")
after(mem8(arg(0)) == after(mem8(arg(1))))
                      ^^^^^^^^^^^^^^^^^^^ after() stands within after() already
""".strip("\n").split("\n")


@pytest.mark.parametrize(("predicate", "below"), list(zip(MISTAKES[::2], MISTAKES[1::2], strict=True)))
def test_a_mistake_is_marked_and_explained(predicate: str, below: str) -> None:
    marks, sentence = below[: len(below) - len(below.lstrip(" ^"))], below.lstrip(" ^")
    with pytest.raises(UsageError) as raised:
        compile_predicate(predicate, 1e9)
    first, *rest = str(raised.value).split("\n")
    assert first.startswith(f"when: {sentence}")
    assert rest == [f"    {predicate}", f"    {marks.rstrip()}"]


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_predicate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--when: the predicate is empty"):
        compile_predicate(text, 1e9, "--when")


def test_the_line_with_the_mistake_is_shown() -> None:
    with pytest.raises(UsageError) as raised:
        compile_predicate("arg(0) == 1 and\n\targ(1) = 2 and\n  arg(3)", 1e9)
    assert str(raised.value).split("\n")[1:] == ["     arg(1) = 2 and", "            ^"]


@pytest.mark.parametrize(
    "text",
    [
        " or ".join(f"result == {10**12 + number}" for number in range(100)),
        f"str(arg(0)) in ({', '.join(repr(f'a rather long name {number}') for number in range(40))})",
        "arg(0) in (" + ", ".join(map(str, range(200))) + ")",
    ],
)
def test_a_predicate_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"the predicate is too long: it takes \d+ of 127 words"):
        check_predicate(text)


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="texts have at most 512 bytes"):
        check_predicate(f"str(arg(0)) == '{'a' * 513}'")
    check_predicate(f"str(arg(0)) == '{'a' * 512}'")


def test_more_than_seven_values_of_the_entry_cannot_be_kept() -> None:
    check_predicate(" and ".join(f"result != arg({place})" for place in range(7)))
    with pytest.raises(UsageError, match="this needs 8 values of the entry at the exit, and 7 can be kept"):
        check_predicate(" and ".join(f"result != arg({place})" for place in range(8)))
    check_predicate(" and ".join("result != arg(3)" for _ in range(8)))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1000 + "1" + ")" * 1000,
        "not " * 5000 + "1",
        "-" * 5000 + "1",
        "u8(" * 2000 + "1" + ")" * 2000,
        "arg(0)" + " + arg(0)" * 3000 + " == 1",
    ],
)
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="this is nested too deeply"):
        check_predicate(text)


# --- whatever the text is, it is compiled or refused ---

NAMES = [
    "arg(0)",
    "arg(",
    "farg(1)",
    "result",
    "fresult",
    "duration",
    "depth",
    "str(",
    "mem8(",
    "after(",
    "startswith(",
]
SIGNS = [
    "(",
    ")",
    "==",
    "!=",
    "<",
    ">=",
    "in",
    "not",
    "and",
    "or",
    "+",
    "-",
    "*",
    "//",
    "%",
    "&",
    "|",
    "~",
    "<<",
    ">>",
    ",",
]
CONSTANTS = ["0", "1", "63", "10us", "1.5", "'a'", '"abc"', "inf", "True", "0xff", "-1", "9223372036854775807"]
WORDS = st.sampled_from([*NAMES, *SIGNS, *CONSTANTS, "u8(", "u64(", "i32(", "f32(", "isnan("])


@given(st.text() | st.lists(WORDS, max_size=25).map(" ".join))
def test_any_text_is_compiled_or_refused_with_a_mark(text: str) -> None:
    try:
        check_predicate(text)
    except UsageError as error:
        *_, shown, marks = str(error).split("\n")
        assert set(marks) == {" ", "^"}
        assert marks.index("^") <= max(len(shown), 4)


# --- the page ---

EXAMPLES, SHOWN_MISTAKE = re.findall(r"\n\n((?:    .*\n)+)", (ROOT / "docs" / "predicates.md").read_text())[:2]


@pytest.mark.parametrize("line", EXAMPLES.splitlines())
def test_the_examples_of_the_page_are_predicates(line: str) -> None:
    check_predicate(re.split(r"  +", line.strip())[0])


def test_the_page_shows_a_mistake_as_it_is_shown() -> None:
    shown = [line[4:] for line in SHOWN_MISTAKE.splitlines()]
    with pytest.raises(UsageError) as raised:
        check_predicate(shown[1].strip())
    assert str(raised.value).split("\n") == shown
