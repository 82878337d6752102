"""Whether a thread may be borrowed to load a library: whether it stands where it holds no lock that loading needs.

Loading needs the loader's own lock, that of the list of threads (for their TLS), and whatever malloc locks. A thread
holds one of these only while it is in the loader, in an allocator, or in a few functions of the C library, so it is
enough to find none of them on its stack. Other threads may be anywhere: they run on, and release what they hold.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from shadowgraph.image import lookup_dynamic
from shadowgraph.ops.borrowing import Verdict
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.stack.calls import LONGEST_CALL, call_target, stub_target
from shadowgraph.stack.code import LoadedCode
from shadowgraph.stack.frame import Frame, FrameKind, Lost
from shadowgraph.stack.snapshot import Snapshot
from shadowgraph.stack.trace import Unwinder
from shadowgraph.target.doorstep import Doorstep
from shadowgraph.target.memory import Memory
from shadowgraph.target.ptrace import Registers

__all__ = ["SafePlace"]

_SYS_FUTEX = 202
_LARGEST_SCAN = 1 << 24

_ALLOCATOR = (
    *("malloc", "free", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "posix_memalign", "valloc"),
    *("pvalloc", "cfree", "malloc_trim", "malloc_stats", "malloc_info", "mallinfo", "mallinfo2", "mallopt"),
    *("malloc_usable_size", "__libc_malloc", "__libc_free", "__libc_calloc", "__libc_realloc", "__libc_memalign"),
)
_LOADER = (
    *("dlopen", "dlmopen", "dlclose", "dlsym", "dlvsym", "dladdr", "dladdr1", "dlinfo", "dlerror", "dl_iterate_phdr"),
    *("__libc_dlopen_mode", "__libc_dlsym", "__libc_dlclose", "__tls_get_addr", "_dl_find_object"),
)
# They hold the allocator's locks in fork, and the lock of the list of threads in the others (glibc, nptl).
_THREADS = (
    *("fork", "__libc_fork", "_Fork", "vfork", "daemon", "forkpty", "pthread_create", "pthread_exit", "pthread_detach"),
    *("pthread_attr_setstack", "pthread_getattr_np", "pthread_setattr_default_np", "setuid", "setgid", "seteuid"),
    *("setegid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "initgroups"),
)
_UNSAFE = frozenset((*_ALLOCATOR, *_LOADER, *_THREADS))
# They wait without a lock, and take one when the wait is over.
_UNSAFE_UNLESS_WAITING = frozenset(
    ("pthread_join", "pthread_tryjoin_np", "pthread_timedjoin_np", "pthread_clockjoin_np", "thrd_join")
)


class SafePlace:
    """Judges threads of one process, which must be stopped."""

    def __init__(self, pid: int, known_modules: KnownModules) -> None:
        self._pid = pid
        self._known_modules = known_modules
        self._allocators: dict[str, bool] = {}

    @cached_property
    def _memory(self) -> Memory:
        return Memory(self._pid)

    @cached_property
    def _unwinder(self) -> Unwinder:
        return Unwinder(self._memory, self._known_modules)

    @cached_property
    def _door(self) -> Doorstep | None:
        return Doorstep.find(self._memory)

    def close(self) -> None:
        """Give the process's memory back, if it was ever looked at."""
        if "_memory" in self.__dict__:
            self._memory.close()

    def __call__(self, registers: Registers) -> Verdict:
        """Whether a thread with these registers holds none of the locks; if not, where it may have released them."""
        if self._door is not None and self._door.holds(registers.rip):
            return Verdict(True)  # the program has not begun
        walk = self._unwinder.walk(registers)
        lost_at = None
        try:
            walk.run(1 << 16)
        except Lost:
            lost_at = walk.registers.get(7)
        frames = walk.frames
        waits = registers.orig_rax == _SYS_FUTEX
        for index in range(len(frames) - 1, -1, -1):
            name = self._inside(frames, index, waits)
            if name is not None:
                above = frames[index + 1] if index + 1 < len(frames) else None
                known = above is not None and above.kind is FrameKind.FUNCTION
                in_loader = any(self._in_loader(frames, at) for at in range(index + 1))
                return Verdict(False, above.pc if known and above is not None else 0, name, in_loader)
        if lost_at is not None and self._on_rest_of_stack(lost_at):
            return Verdict(False, 0, "perhaps: its stack cannot be followed to its end")
        return Verdict(True)

    def _inside(self, frames: list[Frame], index: int, waits: bool) -> str | None:
        """What a frame is of, if it is of a function that may hold a lock."""
        frame = frames[index]
        code = self._code(frame, exact=index == 0 or frames[index - 1].kind is FrameKind.SIGNAL)
        if code is None:
            return None
        if _is_loader(code.name):
            return f"{code.name}!{frame.function or hex(frame.pc)}"
        lookup = frame.pc - (index > 0)
        names = set(code.functions.names(row)) if (row := code.function(lookup)) >= 0 else set()
        if index + 1 < len(frames):
            names |= self._called_from(frames[index + 1])
        wrong = names & (_UNSAFE if waits else _UNSAFE | _UNSAFE_UNLESS_WAITING)
        if wrong:
            return min(wrong)
        if self._is_allocator(code):
            return f"{code.name}!{frame.function or hex(frame.pc)}"
        return self._inside_c_library(frames, index, code, names)

    def _in_loader(self, frames: list[Frame], index: int) -> bool:
        """Whether a frame is of the loader, or of a function that is called with its lock held."""
        frame = frames[index]
        in_library = frame.module is not None and _is_loader(frame.module)
        return in_library or (frame.function or "").split("@")[0] in _LOADER

    def _inside_c_library(self, frames: list[Frame], index: int, code: LoadedCode, names: set[str]) -> str | None:
        """A function of the C library that nobody can name, called from outside of it; or a thread that only ends."""
        if not _is_c_library(code.name) or frames[index].kind is FrameKind.SIGNAL:
            return None
        caller = frames[index + 1] if index + 1 < len(frames) else None
        if caller is None or caller.module != code.name:
            if caller is not None and not names and caller.kind is FrameKind.FUNCTION:
                return f"a function at {frames[index].pc:#x} in {code.name}"
            if caller is None and all(frame.module == code.name for frame in frames):
                return "the start or the end of a thread"
        return None

    def _code(self, frame: Frame, *, exact: bool) -> LoadedCode | None:
        try:
            return self._unwinder.codes.find(frame.pc - (not exact))
        except Lost:
            return None

    def _called_from(self, caller: Frame) -> set[str]:
        """The names of the function that a call leads to, be it gone from the stack by a tail call."""
        code = self._code(caller, exact=False)
        if code is None or caller.kind is not FrameKind.FUNCTION:
            return set()
        snapshot = Snapshot(self._memory)
        try:
            target = call_target(code.text(caller.pc - LONGEST_CALL, caller.pc), caller.pc, snapshot.word)
            if target is None:
                return set()
            stub = stub_target(code.text(target, target + 16), target, snapshot.word)
            reached = target if stub is None else stub
            found = self._unwinder.codes.find(reached)
        except Lost:
            return set()
        row = found.function(reached) if found is not None else -1
        return set(found.functions.names(row)) if found is not None and row >= 0 else set()

    def _is_allocator(self, code: LoadedCode) -> bool:
        """Whether a library is there to replace malloc: all of it may hold its locks."""
        if code.name not in self._allocators:
            replaces = not _is_c_library(code.name) and ".so" in code.name
            self._allocators[code.name] = replaces and lookup_dynamic(code.image, "malloc") is not None
        return self._allocators[code.name]

    def _on_rest_of_stack(self, sp: int) -> bool:
        """Whether anything on a part of a stack that cannot be followed may be an address within these functions."""
        end = self._unwinder.codes.stack_end(sp)
        try:
            words = np.frombuffer(self._memory.read(sp & ~7, min(end - (sp & ~7), _LARGEST_SCAN)), np.uint64)
        except (OSError, ValueError):
            return True
        for word in np.unique(words[words > 4096]).tolist():
            try:
                code = self._unwinder.codes.find(word - 1)
            except Lost:
                continue
            if code is None:
                continue
            row = code.function(word - 1)
            if _is_loader(code.name) or self._is_allocator(code):
                return True
            if row >= 0 and _UNSAFE & set(code.functions.names(row)):
                return True
        return False


def _is_loader(name: str) -> bool:
    return name.startswith("ld-") and not name.startswith("ld-musl")


def _is_c_library(name: str) -> bool:
    return name.startswith(("libc.so", "libc-2", "ld-musl", "libc.musl", "libpthread"))
