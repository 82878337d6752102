"""One ELF file as the rest of the project sees it: segments, text, and what the dynamic linker reads of it.

Addresses are image virtual addresses throughout: what the file says, before the load bias is added.
"""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shadowgraph.errors import UsageError
from shadowgraph.image import elf
from shadowgraph.image.elf import Bytes, DamagedFile, ElfFile

__all__ = ["Image", "Segment", "TextRange", "TlsSegment", "build_id_of", "image_from_bytes", "map_file", "open_image"]

DT_NULL, DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME, DT_FLAGS_1 = 0, 1, 5, 10, 14, 0x6FFFFFFB
DF_1_PIE = 0x08000000
NT_GNU_BUILD_ID = 3
# User addresses have 47 bits (56 with five page-table levels, which nothing is linked for).
ADDRESS_LIMIT = 1 << 47
_PAGE = 4096
PLT_SECTION_NAMES = frozenset({".plt", ".plt.got", ".plt.sec", ".plt.bnd", ".iplt"})

_MACHINES = {
    2: "SPARC",
    3: "32-bit x86",
    8: "MIPS",
    20: "PowerPC",
    21: "PowerPC",
    22: "S/390",
    40: "32-bit ARM",
    183: "ARM64",
}
_MACHINES |= {243: "RISC-V", 258: "LoongArch", 62: "x86-64"}
_DYNAMIC_ENTRY = np.dtype([("tag", "<i8"), ("value", "<u8")])


@dataclass(frozen=True, slots=True)
class Segment:
    """One PT_LOAD: ``memory_size`` bytes at ``address``, the first ``file_size`` of them from the file."""

    address: int
    memory_size: int
    file_offset: int
    file_size: int
    executable: bool
    writable: bool

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.address + self.memory_size


@dataclass(frozen=True, slots=True, eq=False)
class TextRange:
    """A contiguous piece of code: a section where there are section headers, else a whole executable segment."""

    name: str
    address: int
    data: Bytes
    is_plt: bool

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.address + len(self.data)


@dataclass(frozen=True, slots=True)
class TlsSegment:
    """PT_TLS: the initial image of each thread's copy of the image's thread-local variables."""

    address: int
    file_size: int
    memory_size: int
    align: int


class Image:
    """One ELF file, mapped. Pure: nothing here looks at a process."""

    def __init__(self, path: str, file: ElfFile) -> None:
        self.path = path
        self.elf = file
        self.entry = file.entry
        self.is_pie = file.type == elf.ET_DYN
        self.segments = [
            Segment(
                int(row["address"]),
                int(row["memory_size"]),
                int(row["offset"]),
                int(row["file_size"]),
                bool(row["flags"] & elf.PF_X),
                bool(row["flags"] & elf.PF_W),
            )
            for row in self._program_headers(elf.PT_LOAD)
        ]
        for segment in self.segments:
            file.slice(segment.file_offset, segment.file_size)
            if segment.end > ADDRESS_LIMIT or segment.file_size > segment.memory_size:
                raise DamagedFile(f"no program can have its segment at {segment.address:#x}")

    def __repr__(self) -> str:
        return f"<Image {self.path}>"

    def bias(self, base: int) -> int:
        """What to add to an image address where the file's offset 0 is mapped at ``base``."""
        # The linker may leave the headers out of the first segment (-n): it begins later in the file's first page.
        first = min(part.address - part.file_offset for part in self.segments if part.file_offset < _PAGE)
        return base - first

    # --- bytes by address ---

    def view(self, address: int, size: int) -> Bytes:
        """``size`` bytes at an image virtual address, without copying; DamagedFile where the file has none there."""
        for segment in self.segments:
            start = address - segment.address
            if start >= 0 and start + size <= segment.file_size:
                return self.elf.slice(segment.file_offset + start, size)
        raise DamagedFile(f"there are no {size} bytes at address {address:#x} in it")

    def read(self, address: int, size: int) -> bytes:
        """``size`` bytes at an image virtual address as the file has them; UsageError where it has none there."""
        try:
            return self.view(address, size).tobytes()
        except DamagedFile as problem:
            raise UsageError(f"{self.path} cannot be read: {problem}.") from problem

    def rest_of_segment(self, address: int) -> Bytes:
        """All bytes of the file from ``address`` to the end of the segment that holds it; empty if none does."""
        for segment in self.segments:
            start = address - segment.address
            if 0 <= start < segment.file_size:
                return self.elf.slice(segment.file_offset + start, segment.file_size - start)
        return np.zeros(0, np.uint8)

    def is_executable(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of the addresses lie in text, PLT stubs included."""
        inside = np.zeros(len(addresses), np.bool_)
        for text in self.text:
            inside |= (addresses >= np.uint64(text.address)) & (addresses < np.uint64(text.end))
        return inside

    # --- text ---

    @cached_property
    def text(self) -> list[TextRange]:
        """The executable parts, by address. ``is_plt`` tells the linker's stubs apart (with section headers only)."""
        ranges = []
        for section in self.elf.sections:
            if section.executable and section.type != elf.SHT_NOBITS and section.size:
                try:
                    data = self.view(section.address, section.size)
                except DamagedFile:
                    continue
                ranges.append(TextRange(section.name, section.address, data, section.name in PLT_SECTION_NAMES))
        if not ranges:
            ranges = [
                TextRange("", part.address, self.elf.slice(part.file_offset, part.file_size), False)
                for part in self.segments
                if part.executable and part.file_size
            ]
        return sorted(ranges, key=lambda text: text.address)

    # --- what the program headers say ---

    @cached_property
    def interpreter(self) -> str | None:
        """The dynamic linker that the kernel starts (PT_INTERP), or None. Some libraries name one too (libc.so.6)."""
        for row in self._program_headers(elf.PT_INTERP):
            data = self.elf.slice(int(row["offset"]), int(row["file_size"]))
            return elf.string_at(data, 0).decode("utf-8", "surrogateescape")
        return None

    @cached_property
    def tls(self) -> TlsSegment | None:
        """The thread-local segment, or None."""
        for row in self._program_headers(elf.PT_TLS):
            return TlsSegment(int(row["address"]), int(row["file_size"]), int(row["memory_size"]), int(row["align"]))
        return None

    @cached_property
    def eh_frame_header(self) -> tuple[int, int] | None:
        """Address and size of .eh_frame_hdr (PT_GNU_EH_FRAME), or None."""
        for row in self._program_headers(elf.PT_GNU_EH_FRAME):
            return int(row["address"]), int(row["memory_size"])
        return None

    @cached_property
    def build_id(self) -> str:
        """The build id in hexadecimal digits, "" if the linker wrote none."""
        for row in self._program_headers(elf.PT_NOTE):
            try:
                found = _build_id_of_notes(self.elf.slice(int(row["offset"]), int(row["file_size"])).tobytes())
            except DamagedFile:
                continue
            if found:
                return found
        return build_id_of(self.elf)

    # --- the dynamic section ---

    @cached_property
    def dynamic(self) -> dict[int, list[int]]:
        """DT_… tag to its values in file order; empty for a file without a dynamic section."""
        tags: dict[int, list[int]] = {}
        for row in self._program_headers(elf.PT_DYNAMIC):
            data = self.elf.slice(int(row["offset"]), int(row["file_size"]) // 16 * 16)
            table = np.frombuffer(data, _DYNAMIC_ENTRY)
            for tag, value in zip(table["tag"].tolist(), table["value"].tolist(), strict=True):
                if tag == DT_NULL:
                    break
                tags.setdefault(tag, []).append(value)
        return tags

    def dynamic_value(self, tag: int) -> int | None:
        """The first value of a DT_… tag, or None."""
        values = self.dynamic.get(tag)
        return values[0] if values else None

    @cached_property
    def dynamic_strings(self) -> Bytes:
        """The string table of the dynamic linker (DT_STRTAB), empty if there is none."""
        address, size = self.dynamic_value(DT_STRTAB), self.dynamic_value(DT_STRSZ)
        return self.view(address, size) if address is not None and size else np.zeros(0, np.uint8)

    @cached_property
    def needed(self) -> list[str]:
        """The libraries it asks for (DT_NEEDED), in order."""
        return [self._dynamic_string(offset) for offset in self.dynamic.get(DT_NEEDED, [])]

    @cached_property
    def soname(self) -> str:
        """DT_SONAME, or ""."""
        offset = self.dynamic_value(DT_SONAME)
        return self._dynamic_string(offset) if offset is not None else ""

    # --- what kind of file it is ---

    @property
    def is_dynamic(self) -> bool:
        """Whether the kernel starts it through a dynamic linker."""
        return self.interpreter is not None

    @cached_property
    def is_static_pie(self) -> bool:
        """A position-independent program that needs no dynamic linker: it relocates itself."""
        return self._is_marked_program and not self.is_dynamic

    @property
    def is_static(self) -> bool:
        """A program that runs without a dynamic linker, at a fixed address or not (:attr:`is_static_pie`)."""
        return (not self.is_pie and not self.is_dynamic) or self.is_static_pie

    @property
    def is_program(self) -> bool:
        """Whether it can be started, as opposed to a library that is only loaded."""
        return not self.is_pie or self._is_marked_program or (self.is_dynamic and not self.soname)

    @property
    def _is_marked_program(self) -> bool:
        """Whether it is position-independent and has DF_1_PIE, as all linkers write it since 2016 (binutils 2.26).

        The dynamic linker itself, which has an entry point and no interpreter too, does not have it.
        """
        return self.is_pie and bool((self.dynamic_value(DT_FLAGS_1) or 0) & DF_1_PIE)

    def _dynamic_string(self, offset: int) -> str:
        return elf.string_at(self.dynamic_strings, offset).decode("utf-8", "surrogateescape")

    def _program_headers(self, kind: int) -> list[np.void]:
        table = self.elf.program_headers
        return list(table[table["type"] == kind])


def open_image(path: str | os.PathLike[str]) -> Image:
    """Map an ELF file. UsageError, in one sentence, for anything but a whole x86-64 Linux program or library."""
    name = os.fspath(path)
    return _checked_image(name, map_file(name))


def image_from_bytes(data: bytes, path: str) -> Image:
    """The same for bytes that are in memory already (the vDSO); ``path`` is only what messages call it."""
    return _checked_image(path, np.frombuffer(data, np.uint8))


def build_id_of(file: ElfFile) -> str:
    """The build id by its section, for files whose segments are not in the file (separate debug files); "" if none."""
    section = file.section(".note.gnu.build-id")
    try:
        return _build_id_of_notes(file.content(section).tobytes()) if section else ""
    except DamagedFile:
        return ""


def map_file(path: str) -> Bytes:
    """The bytes of a regular file, mapped; UsageError in one sentence if there is none or it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}.") from None
    except OSError as problem:
        raise UsageError(f"{path} cannot be opened: {problem.strerror}.") from problem
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{path} is a directory, not a program or library.")
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is not a regular file, so it is no program or library.")
        if status.st_size == 0:
            raise UsageError(f"{path} is empty, so it is no program or library.")
        # The map outlives the descriptor, and a file that is replaced by rename, as installers do, stays whole in it.
        return np.frombuffer(mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ), np.uint8)
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}.") from problem
    finally:
        os.close(descriptor)


def _checked_image(path: str, data: Bytes) -> Image:
    _refuse_other_formats(path, data[:64].tobytes())
    try:
        image = Image(path, ElfFile(data))
        if not image.segments:
            raise DamagedFile("it has no segment that could be loaded")
        # Everything that the rest of the project takes for granted is looked at once, here, where the path is known.
        _ = image.interpreter, image.dynamic, image.dynamic_strings, image.build_id, image.text
    except DamagedFile as problem:
        raise UsageError(f"{path} is damaged or cut short: {problem}.") from problem
    return image


def _refuse_other_formats(path: str, start: bytes) -> None:
    if start.startswith(b"#!"):
        interpreter = start[2:].split(b"\n")[0].strip().decode("utf-8", "replace")
        raise UsageError(
            f"{path} is a script, not an ELF program; what can be traced is its interpreter, {interpreter}."
        )
    if not start.startswith(b"\x7fELF"):
        raise UsageError(f"{path} is not an ELF program or library.")
    if len(start) < 20:
        raise UsageError(f"{path} is damaged or cut short: it ends within the ELF header.")
    big_endian = start[5] == 2
    machine = int.from_bytes(start[18:20], "big" if big_endian else "little")
    if machine != elf.EM_X86_64 or big_endian:
        architecture = _MACHINES.get(machine, f"machine number {machine}") + (", big-endian" if big_endian else "")
        raise UsageError(f"{path} is built for another architecture ({architecture}); only x86-64 can be traced.")
    if start[4] != 2:
        raise UsageError(f"{path} is a 32-bit program (x32); only 64-bit x86-64 can be traced.")
    kind = int.from_bytes(start[16:18], "little")
    if kind not in (elf.ET_EXEC, elf.ET_DYN):
        what = {1: "an object file that has not been linked", 4: "a core dump"}.get(kind, f"an ELF file of type {kind}")
        raise UsageError(f"{path} is {what}, not a program or library.")


def _build_id_of_notes(notes: bytes) -> str:
    offset = 0
    while offset + 12 <= len(notes):
        name_size, data_size, kind = (int.from_bytes(notes[offset + i : offset + i + 4], "little") for i in (0, 4, 8))
        name = notes[offset + 12 : offset + 12 + name_size]
        data_at = offset + 12 + (name_size + 3) // 4 * 4
        if kind == NT_GNU_BUILD_ID and name == b"GNU\0":
            return notes[data_at : data_at + data_size].hex()
        offset = data_at + (data_size + 3) // 4 * 4
    return ""
