"""What is said of programs that are not followed: a sentence for each reason, with a number and names."""

from __future__ import annotations

from shadowgraph.ops.notes import Notes


def said(*errors: str) -> list[str]:
    found = Notes()
    for error in errors:
        found.unfollowed(error)
    return found.sentences()


def test_one_is_said_as_it_is() -> None:
    assert said("/bin/a: is odd", "/bin/a: is odd") == ["not followed: /bin/a: is odd"]
    assert said("it has gone") == ["not followed: it has gone"]


def test_those_of_one_reason_are_told_together() -> None:
    assert said("/bin/a: is odd: very", "/bin/b: is even", "/bin/c: is odd: very") == [
        "not followed: 2 programs (/bin/a, /bin/c), each of which is odd: very",
        "not followed: /bin/b: is even",
    ]
    assert said("process 7 is confined", "process 12 is confined") == [
        "not followed: 2 processes (7, 12), each of which is confined"
    ]


def test_of_many_five_are_named() -> None:
    (sentence,) = said(*(f"/bin/{letter}: is odd" for letter in "abcdefgh"))
    assert sentence == (
        "not followed: 8 programs (/bin/a, /bin/b, /bin/c, /bin/d, /bin/e and 3 more), each of which is odd"
    )
