"""What code lies where in a process: modules with their unwind tables and functions, and what else is executable.

A mapping is looked at again at every trace, for programs load and unload libraries; what is known of a file is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shadowgraph.errors import ShadowgraphError
from shadowgraph.image import (
    FunctionTable,
    Image,
    Reason,
    UnwindTable,
    image_from_bytes,
    read_functions,
    read_unwind_table,
    reason_by_name,
)
from shadowgraph.image.padding import is_padding
from shadowgraph.image.unwind_rows import UnwindRow, row_at
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.stack.frame import Lost
from shadowgraph.target.memory import Mapping, Memory, read_mappings
from shadowgraph.target.modules import Module, read_modules

__all__ = ["CodeMap", "LoadedCode"]

_DELETED = " (deleted)"
# The most that functions are aligned to.
_ALIGNMENT = 64
_VDSO = "[vdso]"


class LoadedCode:
    """One module in the process. ``bias`` turns its image addresses into addresses of the process.

    What has been found for an address is kept: threads stand at the same ones again and again.
    """

    def __init__(self, name: str, bias: int, image: Image, functions: FunctionTable) -> None:
        self.name = name
        self.bias = bias
        self.image = image
        self.functions = functions
        self._rows: dict[int, tuple[UnwindRow, bool] | None] = {}
        self._functions: dict[int, int] = {}
        self._names: dict[int, str | None] = {}

    def row(self, pc: int) -> tuple[UnwindRow, bool] | None:
        """The unwind row for an address of the process and whether it is a signal frame's; None where there is none."""
        if pc not in self._rows:
            self._rows[pc] = self._find_row(pc)
        return self._rows[pc]

    @cached_property
    def _unwind(self) -> UnwindTable:
        return read_unwind_table(self.image)

    def is_described(self, pc: int) -> bool:
        """Whether the file has unwind information for an address of the process."""
        return pc >= self.bias and self._unwind.index(pc - self.bias) >= 0

    def _find_row(self, pc: int) -> tuple[UnwindRow, bool] | None:
        address = self._behind_nops(pc) - self.bias
        fde = self._unwind.find(address) if address >= 0 else None
        if fde is None:
            return None
        if fde.cie.return_register != 16:
            raise Lost(f"the unwind information for {pc:#x} in {self.name} is of an unknown kind")
        try:
            return row_at(fde, address), fde.cie.is_signal_frame
        except ValueError as error:
            raise Lost(f"the unwind information for {pc:#x} in {self.name} is damaged ({error})") from None

    def _behind_nops(self, pc: int) -> int:
        """Where a thread at an address gets to through nops that no unwind information is for, or the address itself.

        Functions in assembly may run into the next one through what aligns it (__memmove_chk of glibc 2.41 does).
        """
        if pc < self.bias or self.is_described(pc):
            return pc
        row = int(np.searchsorted(self._unwind.start, np.uint64(pc - self.bias)))
        if row == len(self._unwind):
            return pc
        following = int(self._unwind.start[row]) + self.bias
        nops = self.text(pc, following) if following - pc < _ALIGNMENT else b""
        return following if nops and is_padding(nops) else pc

    def function(self, pc: int) -> int:
        """The row in ``functions`` of the function at an address of the process, -1 if it is in none."""
        if pc not in self._functions:
            address = pc - self.bias
            inside = address >= 0 and self.functions.find_part(address) is None
            self._functions[pc] = self.functions.find(address) if inside else -1
        return self._functions[pc]

    def is_stub(self, pc: int) -> bool:
        """Whether the code at an address is a linker-made stub that jumps on to another function."""
        address = pc - self.bias
        return any(text.is_plt and text.address <= address < text.end for text in self.image.text)

    def has_switched_stacks(self, pc: int) -> bool:
        """Whether a thread at an address is behind a load of rsp in a function that leaves on another stack.

        Unwind information of such functions seldom says just where the other stack begins to count.
        """
        row = self.function(pc)
        if row < 0 or not any(reason_by_name(name) is Reason.SWITCHES_STACKS for name in self.functions.names(row)):
            return False
        start = int(self.functions.start[row]) + self.bias
        return _loads_stack_pointer(self.text(start, pc))

    def name_at(self, pc: int) -> str | None:
        """What the code at an address is called; None where nobody knows."""
        if pc not in self._names:
            row = self.function(pc)
            part = self.functions.find_part(pc - self.bias) if row < 0 and pc >= self.bias else None
            self._names[pc] = self.functions.name(row) if row >= 0 else part.name or None if part is not None else None
        return self._names[pc]

    def text(self, low: int, high: int) -> bytes:
        """What the file has at addresses of the process: the code before anybody changed it; b"" where it has none."""
        try:
            return self.image.read(low - self.bias, high - low) if low >= self.bias else b""
        except ShadowgraphError:
            return b""


@dataclass(frozen=True)
class _Known:
    module: Module
    code: LoadedCode


def _loads_stack_pointer(code: bytes) -> bool:
    """Whether bytes of code hold what may be ``mov rsp, …`` from memory or a register, wherever instructions begin."""
    for index in range(len(code) - 2):
        prefix, opcode, operands = code[index : index + 3]
        if opcode == 0x8B and prefix in (0x48, 0x49) and operands & 0x38 == 0x20:
            return True
        if opcode == 0x89 and prefix in (0x48, 0x4C) and operands & 0xC7 == 0xC4:
            return True
    return False


class CodeMap:
    """All code of one process. :meth:`refresh` before each trace."""

    def __init__(self, memory: Memory, known_modules: KnownModules) -> None:
        self.memory = memory
        self.known_modules = known_modules
        self._mappings: list[Mapping] = []
        self._starts: list[int] = []
        self._modules: list[Module] = []
        self._known: dict[tuple[str, int], _Known] = {}

    def refresh(self) -> None:
        """Look again at what is mapped."""
        mappings = read_mappings(self.memory.pid)
        if mappings == self._mappings:
            return
        self._mappings = mappings
        self._starts = [mapping.start for mapping in mappings]
        self._modules = read_modules(self.memory.pid, mappings)

    def mapping(self, address: int) -> Mapping | None:
        """The mapping that holds an address."""
        index = bisect_right(self._starts, address) - 1
        return self._mappings[index] if index >= 0 and address < self._mappings[index].end else None

    def stack_end(self, address: int) -> int:
        """The end of the writable memory that an address lies in, adjacent mappings together."""
        mapping = self.mapping(address)
        end = mapping.end if mapping is not None else address
        while (following := self.mapping(end)) is not None and "w" in following.permissions:
            end = following.end
        return end

    def find(self, pc: int) -> LoadedCode | None:
        """The module whose executable memory holds an address."""
        mapping = self.mapping(pc)
        if mapping is None or "x" not in mapping.permissions:
            return None
        path = mapping.path.removesuffix(_DELETED)
        loaded = (module for module in self._modules if module.path.removesuffix(_DELETED) == path)
        module = next((module for module in loaded if module.low <= pc < module.high), None)
        if module is None and mapping.path == _VDSO:
            module = Module(_VDSO, mapping.start, mapping.start, mapping.end, _VDSO)
        if module is None:
            return None
        key = (module.path, module.base)
        known = self._known.get(key)
        if known is None or known.module != module:
            known = _Known(module, self._open(module, mapping))
            self._known[key] = known
        return known.code

    def _open(self, module: Module, mapping: Mapping) -> LoadedCode:
        try:
            if module.path == _VDSO:
                image = image_from_bytes(self.memory.read(mapping.start, mapping.end - mapping.start), _VDSO)
                return LoadedCode(_VDSO, module.base, image, read_functions(image))
            if mapping.path.endswith(_DELETED):
                # Another file may have taken the path since.
                opened = f"/proc/{self.memory.pid}/map_files/{mapping.start:x}-{mapping.end:x}"
                module = replace(module, opened=opened)
            known = self.known_modules.get(module)
            bias = known.bias(module)
            return LoadedCode(module.name, bias, known.image, known.functions)
        except (ShadowgraphError, OSError) as error:
            raise Lost(f"the file of {module.path} cannot be read ({error})") from None

    def describe(self, address: int) -> str:
        """What an address that is no known code lies in, as words that follow `lies in`."""
        mapping = self.mapping(address)
        if mapping is None:
            return "no memory at all"
        if "x" not in mapping.permissions:
            return f"memory that is not executable ({mapping.path or 'of no file'})"
        if mapping.path == "[uprobes]":
            return "the kernel's trampoline for uprobes"
        if not mapping.path.startswith("/"):
            return "executable memory of no file"
        return f"{mapping.path}, which is no ELF file"
