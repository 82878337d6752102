"""Bringing the agent into a stopped process and to life there."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.errors import StartError
from shadowgraph.image import Image, lookup_dynamic, open_image
from shadowgraph.target.memory import read_mappings
from shadowgraph.target.modules import Module, read_modules
from shadowgraph.target.remote import RemoteThread

__all__ = ["AGENT_PATH", "Agent", "Settings", "inject", "is_agent"]

AGENT_PATH = Path(__file__).resolve().parent.parent / "_native" / "agent.so"
# The same with the thread's state found by the gs base: for loaders that give no static TLS after the start.
_AGENT_BY_GS = AGENT_PATH.with_name("agent-gs.so")

_RTLD_NOW = 2
_SYS_CLOSE = 3
_FORBIDDEN = (errno.EPERM, errno.EACCES, errno.ENOSYS)  # what seccomp filters answer


@dataclass(frozen=True)
class Settings:
    """What the agent is told at its start; see struct sg_settings in native/include/shadowgraph/arena.h."""

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
    memory = thread.memory
    if not AGENT_PATH.exists():
        raise StartError(f"{AGENT_PATH}: the agent has not been built; run `make build`, or reinstall the package")
    _load(thread)
    module = next((m for m in read_modules(memory.pid) if is_agent(m)), None)
    if module is None:
        raise StartError(f"process {memory.pid}: the agent was loaded, but is not among its mappings")
    image = open_image(module.opened)
    block = np.zeros(1, layout.settings_dtype)
    for name in Settings.__dataclass_fields__:
        block[name] = getattr(settings, name)
    block["controller_pid"] = os.getpid()
    block["caller_low"], block["caller_size"] = caller_low, caller_size
    block["main_stack_end"] = next((m.end for m in read_mappings(memory.pid) if m.path == "[stack]"), 0)
    where = module.base + _symbol(image, "sg_settings")
    memory.write(where, block.tobytes())
    file = thread.call(module.base + _symbol(image, "sg_start"))
    if file >= 1 << 63:
        code = (1 << 64) - file
        remedy = "its sandbox forbids that" if code in _FORBIDDEN else "try a smaller --buffer"
        raise StartError(
            f"process {memory.pid}: no memory could be shared with it ({os.strerror(code).lower()}); {remedy}"
        )
    own = os.open(f"/proc/{memory.pid}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    thread.system_call(_SYS_CLOSE, file)
    try:
        arena = Arena(own)
    finally:
        os.close(own)
    result = np.frombuffer(memory.read(where, layout.settings_dtype.itemsize), layout.settings_dtype)[0]
    names = layout.settings_dtype.names or ()
    zones = {name: int(result[name]) for name in names[names.index("arena") :]}
    return Agent(module, arena, zones["enter"], zones)


def is_agent(module: Module) -> bool:
    """Whether a loaded module is the agent: it is never hooked (R27)."""
    return module.path in (str(AGENT_PATH), str(_AGENT_BY_GS))


def _symbol(image: Image, name: str) -> int:
    address = lookup_dynamic(image, name)
    assert address is not None, name
    return address


def _load(thread: RemoteThread) -> None:
    """Call dlopen in the process. Its name and home differ between C libraries and their versions."""
    memory = thread.memory
    for module in read_modules(memory.pid):
        if not module.name.startswith(("libc.so", "libc-2", "libdl", "ld-musl", "libc.musl")):
            continue
        image = open_image(module.opened)
        for name in ("dlopen", "__libc_dlopen_mode"):
            address = lookup_dynamic(image, name)
            if address is not None:
                _load_with(thread, module.base + address, image, module)
                return
    raise StartError(
        f"process {memory.pid}: found no C library with dlopen in it; "
        "only dynamically linked programs can be traced so far"
    )


def _load_with(thread: RemoteThread, dlopen: int, image: Image, module: Module) -> None:
    """Load the agent, or the one that needs no TLS where the loader has none left or never gives any (musl)."""
    if thread.call(dlopen, thread.push(os.fsencode(AGENT_PATH) + b"\0"), _RTLD_NOW):
        return
    reason = _loader_error(thread, image, module)
    if "TLS" in reason and thread.may_use_gs():
        if thread.call(dlopen, thread.push(os.fsencode(_AGENT_BY_GS) + b"\0"), _RTLD_NOW):
            return
        reason = _loader_error(thread, image, module)
    raise StartError(f"process {thread.memory.pid}: its loader refused the agent: {reason}")


def _loader_error(thread: RemoteThread, image: Image, module: Module) -> str:
    address = lookup_dynamic(image, "dlerror")
    text = thread.call(module.base + address) if address is not None else 0
    return thread.memory.read_string(text) if text else "no reason given"
