"""Whether an address is one that a call pushes: it must lie right behind a call instruction.

A rewritten return address (another tracer's trampoline) does not, nor do most values that wrong unwind information
leads to. It is read backwards, so that other bytes may look like a call by chance; no call is overlooked.
"""

from __future__ import annotations

from shadowgraph.stack.expressions import ReadWord

__all__ = ["LONGEST_CALL", "call_target", "ends_in_call", "stub_target"]

# Intel SDM volume 2, CALL: E8 rel32, and FF /2 with a ModRM operand: 2 to 7 bytes, prefixes in front not counted.
LONGEST_CALL = 7
_RELATIVE, _INDIRECT = 0xE8, 0xFF


def ends_in_call(code: bytes) -> bool:
    """Whether the bytes up to an address may end in a call instruction. At most the last 7 matter."""
    if len(code) >= 5 and code[-5] == _RELATIVE:
        return True
    return any(
        len(code) >= size and code[-size] == _INDIRECT and _operand_size(code[-size + 1 :]) == size - 1
        for size in range(2, LONGEST_CALL + 1)
    )


def _operand_size(code: bytes) -> int:
    """Bytes of ModRM, SIB and displacement of a near indirect call (FF /2); 0 for another instruction."""
    mode, operation, base = code[0] >> 6, code[0] >> 3 & 7, code[0] & 7
    if operation != 2:
        return 0
    if mode == 3:
        return 1
    size = 1
    if base == 4:
        if len(code) < 2:
            return 0
        size, base = 2, code[1] & 7
    displacement = (4 if base == 5 else 0, 1, 4)[mode]
    return size + displacement


def call_target(code: bytes, return_address: int, read: ReadWord) -> int | None:
    """Where the call before a return address leads, for direct calls and those through a fixed slot; else None."""
    distance = int.from_bytes(code[-4:], "little", signed=True)
    if code[-5:-4] == b"\xe8":
        return return_address + distance
    if code[-6:-4] == b"\xff\x15":
        return read(return_address + distance, 8)
    return None


# jmp [rip + disp32], alone or behind endbr64, and with the bnd prefix of older linkers.
_STUBS = (b"\xff\x25", b"\xf3\x0f\x1e\xfa\xff\x25", b"\xf3\x0f\x1e\xfa\xf2\xff\x25", b"\xf2\xff\x25")


def stub_target(code: bytes, address: int, read: ReadWord) -> int | None:
    """Where a linker-made stub at an address leads; None if the code there is none."""
    for start in _STUBS:
        if code.startswith(start) and len(code) >= len(start) + 4:
            end = len(start) + 4
            return read(address + end + int.from_bytes(code[len(start) : end], "little", signed=True), 8)
    return None
