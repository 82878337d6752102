"""A file that lies about itself is refused in a sentence or read as far as it goes; it never raises anything else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shadowgraph.errors import UsageError
from shadowgraph.image import image_from_bytes, lookup_dynamic, read_functions, read_imports, read_unwind_table
from tests.support.elf_files import compile_text

SOURCE = """
#include <stdio.h>
__attribute__((noinline)) int helper(int x) { return 3 * x; }
int other_name(int) __attribute__((alias("helper")));
int main(int count, char **words) { printf("%d\\n", helper(count)); return 0; }
"""


def read_everything(data: bytes) -> None:
    image = image_from_bytes(data, "changed.elf")
    unwind = read_unwind_table(image)
    functions = read_functions(image, unwind)
    assert len(functions.preferred_names) == len(functions.start) == len(functions.refused)
    assert (functions.start[1:] > functions.start[:-1]).all()
    for row in range(min(len(unwind), 20)):
        unwind.fde(row)
    read_imports(image)
    lookup_dynamic(image, "helper")
    assert isinstance((image.soname, image.needed, image.tls, image.is_program, image.build_id), tuple)


def damaged(data: bytes, changes: list[tuple[float, bytes]]) -> bytes:
    changed = bytearray(data)
    for place, value in changes:
        at = int(place * (len(changed) - len(value)))
        changed[at : at + len(value)] = value
    return bytes(changed)


def assert_is_a_sentence(refusal: UsageError) -> None:
    text = str(refusal)
    assert text.startswith("changed.elf is ") and text.endswith(".") and "\n" not in text


places = st.floats(0, 1, allow_nan=False) | st.floats(0, 0.08) | st.floats(0.7, 1)
values = st.binary(min_size=1, max_size=8) | st.sampled_from([b"\0" * 8, b"\xff" * 4, b"\xff" * 8, b"\0\0\0\x80"])


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(places, values), min_size=1, max_size=30), st.sampled_from(["-O2", "-O2 -s"]))
def test_changed_bytes_never_surprise(changes, flags):
    data = compile_text(SOURCE, flags).read_bytes()
    try:
        read_everything(damaged(data, changes))
    except UsageError as refusal:
        assert_is_a_sentence(refusal)


@settings(max_examples=150, deadline=None)
@given(st.floats(0, 1, allow_nan=False))
def test_cut_files_never_surprise(place):
    data = compile_text(SOURCE, "-O2").read_bytes()
    try:
        read_everything(data[: int(place * len(data))])
    except UsageError as refusal:
        assert_is_a_sentence(refusal)
