"""Where a program stops that has just been loaded: instructions behind the vDSO that lead to its entry point.

The loader goes to the address that the auxiliary vector has for AT_ENTRY (System V ABI, section 3.4.3). That word, on
the stack of a program that has just been executed, is made to lead to these instructions, and made what it was when
they are reached. They tell the tracer, by a signal that does nothing without one, and go on to the entry point. So if
the tracer is killed while the loader is at work, the program begins as it would have without it; a breakpoint would
end it.

While controllers are ``expected``, the program waits here for them, and looks every 10 ms: where the one that was to
enter it first has been killed, others do it. When none has given a sign of life for three seconds it begins.
"""

from __future__ import annotations

import signal
import struct

from shadowgraph.target.memory import AT_ENTRY, PAGE, Mapping, Memory, read_mappings
from shadowgraph.target.ptrace import Registers
from shadowgraph.target.status import read_status

__all__ = ["Doorstep"]

_CODE = bytes.fromhex(
    "5051525355565741 53"  #  push %rax, %rcx, %rdx, %rbx, %rbp, %rsi, %rdi, %r11
    "8b3d69000000"  #         mov process(%rip), %edi
    "8b3567000000"  #         mov thread(%rip), %esi
    "8b1565000000"  #         mov sign(%rip), %edx
    "b8ea000000"  #           mov $234, %eax         tgkill
    "0f05"  #                 syscall
    "bb2c010000"  #           mov $300, %ebx         here: 3 seconds
    "8b2d47000000"  #         mov beat(%rip), %ebp
    "833d3c00000000"  #       cmpl $0, expected(%rip)
    "741c"  #                 je to the pop
    "31ff"  #                 xor %edi, %edi
    "31f6"  #                 xor %esi, %esi
    "ba0a000000"  #           mov $10, %edx
    "b807000000"  #           mov $7, %eax           poll
    "0f05"  #                 syscall
    "3b2d28000000"  #         cmp beat(%rip), %ebp
    "75d4"  #                 jne here
    "ffcb"  #                 dec %ebx
    "75db"  #                 jnz to the cmpl
    "415b5f5e5d5b5a5958"  #   pop %r11, %rdi, %rsi, %rbp, %rbx, %rdx, %rcx, %rax
    "ff2507000000"  #         jmp *entry(%rip)
)
_HERE = 0x22
_SAVED = ("r11", "rdi", "rsi", "rbp", "rbx", "rdx", "rcx", "rax")
_WORDS = struct.Struct("<QIIIII")  # entry, expected, beat, process, thread, sign
_WORDS_AT, _EXPECTED_AT, _BEAT_AT = 0x68, 0x70, 0x74
_SIZE = _WORDS_AT + _WORDS.size
_BEFORE_END = 192  # of the page: behind it is the way home (way_home.py)
_USELESS_SIGNALS = (signal.SIGURG, signal.SIGWINCH, signal.SIGCHLD)  # ignored by default (signal(7))
_NO_SYSTEM_CALL = (1 << 64) - 1


class Doorstep:
    """The instructions of one program, which are at an address."""

    def __init__(self, memory: Memory, at: int) -> None:
        self._memory = memory
        self.at = at
        self._entry_word = 0
        self.sign = 0

    @classmethod
    def lay(cls, pid: int, memory: Memory, registers: Registers, expected: int) -> Doorstep | None:
        """For a program that stands where it has been executed; None, with nothing changed, where there is no room.

        So many controllers are ``expected`` to come if we do not.
        """
        status, mapping = read_status(pid) or {}, _vdso(pid)
        blocked = int(status.get("SigBlk", "0"), 16)
        sign = next((number for number in _USELESS_SIGNALS if not blocked >> (number - 1) & 1), 0)
        number = int(status.get("NSpid", "0").split()[-1])
        if mapping is None or not sign or not number:
            return None
        door = cls(memory, mapping.end - _BEFORE_END)
        door.sign = sign
        try:
            door._entry_word = _find_entry_word(pid, memory, registers.rsp)
            entry = memory.read_word(door._entry_word) if door._entry_word else 0
            if not entry or memory.read(door.at, _SIZE) != bytes(_SIZE):
                return None
            words = _WORDS.pack(entry, expected, 0, number, number, sign)
            memory.write(door.at, _CODE.ljust(_WORDS_AT, b"\0") + words)
            memory.write(door._entry_word, door.at.to_bytes(8, "little"))
        except OSError:
            return None
        return door

    @classmethod
    def find(cls, memory: Memory) -> Doorstep | None:
        """That of a process, where it has one; it may have left it long ago."""
        try:
            mapping = _vdso(memory.pid)
            if mapping is None or memory.read(mapping.end - _BEFORE_END, len(_CODE)) != _CODE:
                return None
        except OSError:
            return None  # it has ended
        return cls(memory, mapping.end - _BEFORE_END)

    def is_reached(self, registers: Registers) -> bool:
        """Whether a thread stands where it has just told its tracer of itself."""
        return registers.rip == self.at + _HERE

    def holds(self, pc: int) -> bool:
        """Whether an address is one of these instructions: the program has not begun."""
        return self.at <= pc < self.at + len(_CODE)

    def is_waited_at(self) -> bool:
        """Whether the program is here at this moment, waiting."""
        with open(f"/proc/{self._memory.pid}/syscall") as file:
            words = file.read().split()  # of one that waits, the last one is where it will go on (proc(5))
        return len(words) > 2 and self.holds(int(words[-1], 16))

    def restore_entry(self) -> None:
        """Once it is reached: the auxiliary vector as it was."""
        self._memory.write(self._entry_word, self._memory.read(self.at + _WORDS_AT, 8))

    def at_entry(self, registers: Registers) -> Registers:
        """The registers with which it would reach the entry point."""
        found = registers.copy()
        words = struct.unpack("<8Q", self._memory.read(registers.rsp, 64))
        for name, value in zip(_SAVED, words, strict=True):
            setattr(found, name, value)
        found.rsp, found.rip, found.orig_rax = registers.rsp + 64, self.entry, _NO_SYSTEM_CALL
        return found

    @property
    def entry(self) -> int:
        """The program's entry point."""
        return self._memory.read_word(self.at + _WORDS_AT)

    @property
    def expected(self) -> int:
        """How many controllers are to come before the program begins."""
        return int.from_bytes(self._memory.read(self.at + _EXPECTED_AT, 4), "little")

    def expect(self, count: int) -> None:
        """So many are to come from now on."""
        self._memory.write(self.at + _EXPECTED_AT, count.to_bytes(4, "little"))

    def beat(self, number: int) -> None:
        """Tell the program that one of them is about to: each number is another than the last one."""
        self._memory.write(self.at + _BEAT_AT, (number & 0xFFFF_FFFF).to_bytes(4, "little"))


def _vdso(pid: int) -> Mapping | None:
    return next((mapping for mapping in read_mappings(pid) if mapping.path == "[vdso]"), None)


def _find_entry_word(pid: int, memory: Memory, stack: int) -> int:
    """Where the value of AT_ENTRY is on the stack of a program that has just been executed; 0 if it is not there."""
    with open(f"/proc/{pid}/auxv", "rb") as file:
        vector = file.read()
    at = stack + 8 * (memory.read_word(stack) + 2)  # behind the arguments
    while True:  # the environment
        words = memory.read(at, PAGE - at % PAGE)
        end = next((index for index in range(0, len(words), 8) if not any(words[index : index + 8])), None)
        if end is not None:
            break
        at += len(words)
    at += end + 8
    pairs = list(struct.iter_unpack("<QQ", vector))
    index = next((index for index, (kind, _) in enumerate(pairs) if kind == AT_ENTRY), None)
    if index is None or memory.read(at, 16 * (index + 1)) != vector[: 16 * (index + 1)]:
        return 0
    return at + 16 * index + 8
