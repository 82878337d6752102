"""Bringing the agent into a stopped process and to life there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.agent.loader import LENT_NAME, Loader, visible_in
from shadowgraph.errors import StartError
from shadowgraph.image import lookup_dynamic, open_image
from shadowgraph.target.memory import Memory, read_mappings
from shadowgraph.target.modules import Module, read_modules
from shadowgraph.target.remote import RemoteThread

__all__ = [
    "AGENT_PATH",
    "Agent",
    "Settings",
    "agent_function",
    "announce_handlers",
    "find_agent",
    "guard",
    "inject",
    "is_agent",
    "is_agent_path",
    "is_guarded",
    "is_same_build",
    "load",
    "loading_unasked",
    "read_zones",
    "set_ask_when_loaded",
    "start",
]

AGENT_PATH = Path(__file__).resolve().parent.parent / "_native" / "agent.so"
# The same with the thread's state found by the gs base: for loaders that give no static TLS after the start.
_AGENT_BY_GS = AGENT_PATH.with_name("agent-gs.so")

_SYS_CLOSE = 3
_PAGE = 4096
_LENT = f"/memfd:{LENT_NAME}agent"
_FORBIDDEN = (errno.EPERM, errno.EACCES, errno.ENOSYS)  # what seccomp filters answer


@dataclass(frozen=True)
class Settings:
    """How to record, and what the agent is told at its start: see struct sg_settings and struct sg_rings in arena.h."""

    policy: int = layout.POLICY_BLOCK
    segment_size: int = 128 << 10
    segments: int = 512
    threads: int = 8192
    chunks: int = 8192
    minimal_ticks: int = 0
    depth_limit: int = 0
    frame_limit: int = 0
    capture: int = 0
    stacks_are_copied: int = 0
    loader_note: int = 0
    ask_when_loaded: int = 0
    tick_base: int = 0


@dataclass(frozen=True)
class Agent:
    """The agent in one process: ``arena`` is shared with it, ``enter`` is where thunks jump to."""

    module: Module
    arena: Arena
    enter: int
    zones: dict[str, int]


def inject(thread: RemoteThread, settings: Settings, caller_low: int, caller_size: int) -> Agent:
    """Load the agent through the process's own loader, and start it.

    Only an object that the loader knows is found by dl_iterate_phdr, hence by unwinders and debuggers (design: 1).
    ``caller_low`` and ``caller_size`` are the text of the executable.
    """
    return start(thread, load(thread), settings, caller_low, caller_size)


def load(thread: RemoteThread) -> Module:
    """Load the agent, and no more. The thread must hold no lock that its loader or allocator may want."""
    pid = thread.memory.pid
    if not AGENT_PATH.exists():
        raise StartError(f"{AGENT_PATH}: the agent has not been built; run `make build`, or reinstall the package")
    with visible_in(thread, (AGENT_PATH, _AGENT_BY_GS)) as names:
        _load(thread, names)
    module = find_agent(pid)
    if module is None:
        raise StartError(f"process {pid}: the agent was loaded, but is not among its mappings")
    return module


def start(
    thread: RemoteThread, module: Module, settings: Settings, caller_low: int, caller_size: int, entry: str = "sg_start"
) -> Agent:
    """Bring a loaded agent to life: sg_start the first time, sg_renew in a process where it has been used before."""
    memory = thread.memory
    block = np.zeros(1, layout.settings_dtype)
    for name in set(Settings.__dataclass_fields__) & set(block.dtype.names or ()):
        block[name] = getattr(settings, name)
    block["caller_low"], block["caller_size"] = caller_low, caller_size
    block["main_stack_end"] = next((m.end for m in read_mappings(memory.pid) if m.path == "[stack]"), 0)
    where = module.base + _symbol(module, "sg_settings")
    former = memory.read(where, layout.settings_dtype.itemsize)
    memory.write(where, block.tobytes())
    file = thread.call(module.base + _symbol(module, entry))
    if file >= 1 << 63:
        memory.write(where, former)
        code = (1 << 64) - file
        remedy = "its sandbox forbids that" if code in _FORBIDDEN else "try a smaller buffer"
        if code == errno.EFBIG:
            remedy = "shared memory counts as a file: allow larger ones (ulimit -f)"
        raise StartError(
            f"process {memory.pid}: no memory could be shared with it ({os.strerror(code).lower()}); {remedy}"
        )
    own = os.open(f"/proc/{memory.pid}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    thread.system_call(_SYS_CLOSE, file)
    zones = read_zones(memory, module)
    return Agent(module, Arena(own), zones["enter"], zones)


def find_agent(pid: int) -> Module | None:
    """The agent in a process, if it is in there."""
    return next((module for module in read_modules(pid) if is_agent(module)), None)


def read_zones(memory: Memory, module: Module) -> dict[str, int]:
    """What a loaded agent tells of itself: the results in its settings. All are 0 before it has been started."""
    where = module.base + _symbol(module, "sg_settings")
    result = np.frombuffer(memory.read(where, layout.settings_dtype.itemsize), layout.settings_dtype)[0]
    names = layout.settings_dtype.names or ()
    return {name: int(result[name]) for name in names[names.index("arena") :]}


def is_same_build(memory: Memory, module: Module) -> bool:
    """Whether a loaded agent is of the build that we would load. Its first page has its headers and its build id."""
    with open(_file_of(module), "rb") as file:
        return memory.read(module.base, _PAGE) == file.read(_PAGE)


def _file_of(module: Module) -> Path:
    """Our copy of the file that a loaded agent is a copy of."""
    return _AGENT_BY_GS if module.path.endswith(_AGENT_BY_GS.name) else AGENT_PATH


def is_agent(module: Module) -> bool:
    """Whether a loaded module is the agent: it is never hooked (R27)."""
    return is_agent_path(module.path)


def is_agent_path(path: str) -> bool:
    """Whether a loaded file is the agent, by the path that the process has it under."""
    return path in (str(AGENT_PATH), str(_AGENT_BY_GS)) or path.startswith(_LENT)


def agent_function(module: Module, name: str) -> int:
    """The address of one of the agent's functions in a process that has it loaded as ``module``."""
    return module.base + _symbol(module, name)


def set_ask_when_loaded(memory: Memory, module: Module) -> None:
    """Have the agent, loaded as ``module``, tell the recorder when libraries are loaded."""
    _set(memory, module, "ask_when_loaded", 1)


@contextmanager
def loading_unasked(thread: RemoteThread, module: Module) -> Iterator[None]:
    """Let a borrowed thread load and unload without telling controllers: who has borrowed it could not answer."""
    _set(thread.memory, module, "borrowed", thread.control_block)
    try:
        yield
    finally:
        _set(thread.memory, module, "borrowed", 0)


def _set(memory: Memory, module: Module, name: str, value: int) -> None:
    """Change one of the agent's settings."""
    fields = layout.settings_dtype.fields
    assert fields is not None
    place = agent_function(module, "sg_settings") + fields[name][1]
    memory.write(place, value.to_bytes(fields[name][0].itemsize, "little"))


def is_guarded(memory: Memory, module: Module) -> bool:
    """Whether the agent catches the faults of handlers."""
    fields = layout.settings_dtype.fields
    assert fields is not None
    return any(memory.read(agent_function(module, "sg_settings") + fields["guarded"][1], 8))


def guard(thread: RemoteThread, module: Module, *, on: bool) -> None:
    """Have the agent, loaded as ``module``, catch the faults of handlers, or leave all signals to the program again."""
    if is_guarded(thread.memory, module) != on:
        thread.call(agent_function(module, "sg_guard"), int(on))


def announce_handlers(memory: Memory, module: Module, slot: int, epoch: int, number: int) -> None:
    """Say in a process's private memory that handlers have come to it (struct sg_handlers_here)."""
    fields = layout.handlers_here_dtype.fields
    assert fields is not None
    place = agent_function(module, "sg_handlers_here")
    for at, value in ((fields["numbers"][1] + 8 * slot, number), (fields["epoch"][1], epoch)):
        memory.write(place + at, value.to_bytes(8, "little"))


def _symbol(module: Module, name: str) -> int:
    return _symbol_of(_file_of(module), name)


@cache
def _symbol_of(file: Path, name: str) -> int:
    address = lookup_dynamic(open_image(str(file)), name)
    assert address is not None, name
    return address


def _load(thread: RemoteThread, names: list[str]) -> None:
    """Load the agent, or the one that needs no TLS where the loader has none left or never gives any (musl)."""
    loader = Loader(thread)
    if loader.open(names[0]):
        return
    reason = loader.error()
    if "TLS" in reason and thread.may_use_gs():
        if loader.open(names[1]):
            return
        reason = loader.error()
    raise StartError(f"process {thread.memory.pid}: its loader refused the agent: {reason}")
