"""What it costs a call to be asked whether it matters: the evaluator of predicates, which runs in the traced program.

    python bench/predicate_cost.py

Each predicate holds, so that all of it is evaluated. The ratio is to two time stamps, which a recorded call has at
least.
"""

from __future__ import annotations

import ctypes
import struct
import sys

from _lines import say, say_missing
from _programs import ROOT, NotBuilt, build_predicates

sys.path.insert(0, str(ROOT / "src"))

from shadowgraph.ops.predicates import compile_predicate

RATE = 2.5e9
RUNS = 5
TEXT = ctypes.create_string_buffer(b"/etc/passwd")

# At the entry, and at the exit; those that read memory probe it with a system call and are timed over fewer rounds.
PREDICATES = (
    ("arg(0) == 1 and arg(2) > 4096", 10**6, 1.0),
    ("depth < 10 and thread in (1, 2, 3)", 10**6, None),
    ("u32(arg(1)) & 0o100", 10**6, None),
    ("farg(0) > 1.5", 10**6, None),
    ("duration > 10us", 10**6, 1.0),
    ("i32(result) == -1 and duration > 1ms", 10**6, None),
    ("mem8(arg(3)) == '/'", 10**4, None),
    ('str(arg(3)) in ("/etc/group", "/etc/passwd")', 10**4, None),
)


class Call:
    """A call for which all of them hold: struct sg_predicate_input, and what it points to."""

    def __init__(self) -> None:
        words = ctypes.c_uint64 * 16
        self._integers = words(1, 0o101, 8192, ctypes.addressof(TEXT))
        self._vectors = words(*struct.unpack("<Q", struct.pack("<d", 2.0)))
        self._saved = words()
        pointers = [ctypes.addressof(part) for part in (self._integers, self._integers, self._vectors, self._saved)]
        self.bytes = struct.pack("<12Q", *pointers, 1, 0xFFFFFFFF, 0, 0, 10**8, 3, 2, 1)


def main() -> None:
    try:
        library = ctypes.CDLL(str(build_predicates()))
    except NotBuilt as reason:
        say_missing("predicates", str(reason))
        return
    library.time_predicate.restype = library.time_two_stamps.restype = ctypes.c_uint64
    call = Call()
    for text, rounds, most in PREDICATES:
        predicate = compile_predicate(text, RATE)
        code, count = predicate.exit_code or predicate.entry_code, ctypes.c_uint64(rounds)
        taken = [library.time_predicate(code, call.bytes, count) for _ in range(RUNS)]
        assert all(taken), f"{text}: does not hold"
        stamps = min(library.time_two_stamps(count) for _ in range(RUNS)) / rounds
        figures = {"ratio": min(taken) / rounds / stamps, "to": "two stamps", "evaluation_ns": min(taken) / rounds}
        say(text, figures, target={"ratio": most} if most else None)


if __name__ == "__main__":
    main()
