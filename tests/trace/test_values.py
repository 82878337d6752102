"""Captured arguments and results become readable text, whatever bytes they hold."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from shadowgraph.agent import layout
from shadowgraph.trace import call_writer, sorting
from shadowgraph.trace.convert import convert
from shadowgraph.trace.folder import CALLS, SPOOL, create_folder
from shadowgraph.trace.spool_writer import SpoolWriter
from tests.support.synthetic import Call, raw_record

CUT, BAD = 1 << 32, 2 << 32


def word(value: int) -> bytes:
    return struct.pack("<Q", value & (1 << 64) - 1)


def double(value: float) -> bytes:
    return struct.pack("<d", value)


def string(text: bytes, pointer: int = 0x1000, flags: int = 0) -> bytes:
    return word(pointer) + word(len(text) | flags) + text + bytes(-len(text) % 8)


def padded(words: bytes) -> bytes:
    return words + bytes(-len(words) % 16)


def texts(folder: Path, specs: list[dict[str, Any]], records: list[bytes]) -> list[tuple[str | None, str | None]]:
    create_folder(folder, {})
    writer = SpoolWriter(folder / SPOOL)
    writer.append("values", specs)
    writer.append_records(0, b"".join(records))
    writer.close()
    convert(folder)
    table = pq.read_table(folder / CALLS)
    return list(zip(table["arguments"].to_pylist(), table["result"].to_pylist(), strict=True))


def one(folder: Path, kind: str, payload: bytes) -> str | None:
    specs = [{"function": 1, "arguments": [{"type": kind}], "results": []}]
    return texts(folder, specs, [raw_record(Call(10, 0, 5, 1), padded(payload))])[0][0]


@pytest.mark.parametrize(
    ("kind", "payload", "text"),
    [
        ("i8", word(0xFF), "-1"),
        ("i16", word(0x1FFFE), "-2"),
        ("i32", word(0xFFFFFFFF), "-1"),
        ("i64", word(-(1 << 63)), "-9223372036854775808"),
        ("u8", word(0x1FF), "255"),
        ("u16", word(0xFFFF), "65535"),
        ("u32", word(1 << 40 | 7), "7"),
        ("u64", word((1 << 64) - 1), "18446744073709551615"),
        ("ptr", word(0xABC), "0xabc"),
        ("ptr", word(0), "NULL"),
        ("bool", word(0x100), "false"),
        ("bool", word(1), "true"),
        ("char", word(ord("x")), "'x'"),
        ("char", word(ord("'")), "'\\''"),
        ("char", word(ord("\n")), "'\\n'"),
        ("f64", double(0.1), "0.1"),
        ("f64", double(1 / 3), "0.3333333333333333"),
        ("f64", double(float("-inf")), "-inf"),
        ("f32", struct.pack("<fI", 0.1, 0), "0.1"),
        ("str", string(b""), '""'),
        ("str", string(b"hello"), '"hello"'),
        ("str", string("grün €".encode()), '"grün €"'),
        ("str", string(b'a"b\\\n\x01\xff'), '"a\\"b\\\\\\n\\x01\\xff"'),
        ("str", string(b"\xed\xa0\x80\xc0\x80"), '"\\xed\\xa0\\x80\\xc0\\x80"'),
        ("str", string(b"long", flags=CUT), '"long"...'),
        ("str", string(b"", pointer=0), "NULL"),
        ("str", string(b"", pointer=0xDEAD, flags=BAD), "0xdead"),
    ],
)
def test_a_value_of_each_type_reads_as_its_text(tmp_path: Path, kind: str, payload: bytes, text: str) -> None:
    assert one(tmp_path / "a.sgt", kind, payload) == text


def test_arguments_and_results_go_to_their_columns_and_are_named(tmp_path: Path) -> None:
    specs = [
        {
            "function": 1,
            "arguments": [{"type": "u64", "name": "size"}, {"type": "str", "name": "name"}],
            "results": [{"type": "ptr"}],
        },
        {"function": 2, "arguments": [], "results": [{"type": "i32"}, {"type": "i32"}]},
    ]
    payload = padded(word(24) + string(b"abc") + word(0x55))
    records = [
        raw_record(Call(10, 1, 5, 1), payload),
        raw_record(Call(20, 1, 5, 1)),
        raw_record(Call(30, 1, 5, 2), padded(word(-1) + word(7))),
        raw_record(Call(40, 1, 5, 1, layout.KIND_UNWOUND), padded(word(1) + string(b""))),
        raw_record(Call(50, 1, 5, 3)),
    ]
    assert texts(tmp_path / "a.sgt", specs, records) == [
        ('size=24, name="abc"', "0x55"),
        (None, None),
        (None, "-1, 7"),
        ('size=1, name=""', None),
        (None, None),
    ]


def test_words_that_end_too_early_give_what_is_there(tmp_path: Path) -> None:
    specs = [{"function": 1, "arguments": [{"type": "u64"}, {"type": "u64"}, {"type": "str"}], "results": []}]
    short = raw_record(Call(10, 0, 5, 1), word(1) + word(2))
    lying = raw_record(Call(20, 0, 5, 1), padded(word(1) + word(2) + word(0x1000) + word(1 << 20)))
    assert texts(tmp_path / "a.sgt", specs, [short, lying]) == [("1, 2", None), ("1, 2", None)]


@pytest.mark.parametrize("block", [300, 1 << 18])
def test_values_stay_with_their_calls_through_sorting(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting.ThreadSorter.__init__, "__defaults__", (block,))
    monkeypatch.setattr(call_writer, "ROW_GROUP", 256)
    specs = [{"function": 1, "arguments": [{"type": "u64"}], "results": [{"type": "str"}]}]
    records = []
    for outer in range(20):
        begin = 10_000 * outer
        for inner in range(40):
            start = begin + 10 + 100 * inner
            records.append(raw_record(Call(start, 1, 50, 1), padded(word(start) + string(b"x" * (inner % 30)))))
        records.append(raw_record(Call(begin, 0, 9000, 1), padded(word(begin) + string(b"outer"))))
    folder = tmp_path / "a.sgt"
    rows = texts(folder, specs, records)
    starts = pq.read_table(folder / CALLS)["start_ns"].to_pylist()
    assert [row[0] for row in rows] == [str(start) for start in starts]
    assert sum(row[1] == '"outer"' for row in rows) == 20
