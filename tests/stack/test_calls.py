"""Whether an address follows a call: no call is overlooked, and where direct ones lead."""

from __future__ import annotations

from pathlib import Path

import pytest
from iced_x86 import Decoder, FlowControl

from shadowgraph.image import open_image
from shadowgraph.stack.calls import LONGEST_CALL, call_target, ends_in_call, stub_target

PROGRAMS = [path for path in ("/bin/bash", "/usr/bin/perl", "/lib/x86_64-linux-gnu/libc.so.6") if Path(path).exists()]


@pytest.mark.parametrize("path", PROGRAMS)
def test_every_call_of_real_programs_is_seen(path: str) -> None:
    text = max(open_image(path).text, key=lambda part: len(part.data))
    code = text.data.tobytes()[:400_000]
    calls = others = mistaken = 0
    for instruction in Decoder(64, code, ip=text.address):
        end = instruction.next_ip - text.address
        before = code[max(0, end - LONGEST_CALL) : end]
        if (
            instruction.flow_control in (FlowControl.CALL, FlowControl.INDIRECT_CALL)
            and code[end - instruction.len] != 0x0F
        ):
            assert ends_in_call(before), str(instruction)
            calls += 1
            if instruction.flow_control == FlowControl.CALL:
                assert call_target(before, instruction.next_ip, read) == instruction.near_branch_target
        else:
            others += 1
            mistaken += ends_in_call(before)
    assert calls > 1000
    assert mistaken < others / 50


def read(address: int, size: int) -> int:
    return address * 2


@pytest.mark.parametrize(
    "code",
    [
        "e8 00000000",
        "67 e8 00000000",
        "66 66 48 e8 00000000",
        "ff d0",
        "41 ff d4",
        "3e ff d0",
        "ff 15 00000000",
        "ff 14 25 00000000",
        "ff 50 08",
        "41 ff 54 24 10",
        "ff 94 c3 00010000",
        "ff 14 c5 00000000",
        "ff 54 24 f8",
    ],
)
def test_forms_of_calls(code: str) -> None:
    assert ends_in_call(bytes.fromhex(code))
    assert ends_in_call(bytes.fromhex("90 90 90 90" + code))


@pytest.mark.parametrize(
    "code", ["", "90", "ff", "ff e0", "ff 25 00000000", "c3", "e9 00000000", "ff 35 00000000", "0f 05"]
)
def test_other_instructions(code: str) -> None:
    assert not ends_in_call(bytes.fromhex(code))


def test_targets() -> None:
    assert call_target(bytes.fromhex("e8 10000000"), 0x1000, read) == 0x1010
    assert call_target(bytes.fromhex("e8 f0ffffff"), 0x1000, read) == 0xFF0
    assert call_target(bytes.fromhex("ff 15 10000000"), 0x1000, read) == 0x2020
    assert call_target(bytes.fromhex("41 ff d4"), 0x1000, read) is None
    assert stub_target(bytes.fromhex("ff 25 10000000"), 0x1000, read) == 2 * 0x1016
    assert stub_target(bytes.fromhex("f3 0f 1e fa ff 25 10000000"), 0x1000, read) == 2 * 0x101A
    assert stub_target(bytes.fromhex("55 48 89 e5 90 90 90 90 90 90"), 0x1000, read) is None
