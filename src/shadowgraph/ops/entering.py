"""Entering a program that stands at its entry point: choose functions, load the agent, hook them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.hooks import Request, hook
from shadowgraph.agent.inject import Agent, Settings, inject, is_agent
from shadowgraph.errors import StartError
from shadowgraph.image import Reason
from shadowgraph.image.runtimes import V8_RESOLVER
from shadowgraph.ops.choices import Choice, Chosen, EnteredProcess
from shadowgraph.ops.function_ids import FunctionIds
from shadowgraph.ops.known_modules import KnownModule, KnownModules
from shadowgraph.ops.recorder_slot import take_first_place
from shadowgraph.ops.refusals import Refusals
from shadowgraph.ops.requests import count_hooks, request_hooks
from shadowgraph.ops.selection import LibraryCalls, Selection
from shadowgraph.ops.values import Capture
from shadowgraph.patch import ModulePlan
from shadowgraph.target.limits import lifted
from shadowgraph.target.memory import Memory
from shadowgraph.target.modules import Module, read_modules
from shadowgraph.target.remote import RemoteThread

__all__ = [
    "choose",
    "choose_loaded",
    "complete",
    "enter",
    "needed_modules",
    "rows_wanted",
    "tell_runtimes",
]

# Functions hooked for the agent's own needs: name, flags, variant.
_EXEC_FUNCTIONS = (
    ("execve", layout.FLAG_EXEC, layout.EXEC_EXECVE),
    ("execveat", layout.FLAG_EXEC, layout.EXEC_EXECVEAT),
    ("fexecve", layout.FLAG_EXEC, layout.EXEC_FEXECVE),
)
_CLONE = ("clone", layout.FLAG_CLONE, 0)
_EXIT_FUNCTIONS = (("_exit", layout.FLAG_EXIT, 0), ("_Exit", layout.FLAG_EXIT, 0))
_SIGACTION = ("sigaction", layout.FLAG_SIGACTION, 0)
_LOADER_NOTE = "_dl_debug_state"


def enter(
    tid: int,
    selection: Selection,
    capture: Capture,
    settings: Settings,
    known_modules: KnownModules,
    ids: FunctionIds,
    *,
    follow: bool,
) -> EnteredProcess:
    """Load the agent into the process of a stopped thread at the program's entry point, and hook what is chosen.

    Everything is planned and checked before the first byte is changed.
    """
    memory = Memory(tid)
    try:
        asked: dict[int, int] = {}
        chosen = choose(memory, lambda address: asked.setdefault(address, 0), selection, known_modules, follow=follow)
        if asked:
            with RemoteThread(tid, memory) as thread:
                asked = {address: thread.call(address) for address in asked}
            chosen = choose(memory, asked.__getitem__, selection, known_modules, follow=follow)
        refused = Refusals(chosen.executable.path)
        planned = [_planned(choice, request_hooks(choice, capture, ids, refused)) for choice in chosen.choices.values()]
        settings = complete(settings, chosen, known_modules, selection)
        with lifted(tid), RemoteThread(tid, memory) as thread:
            agent = inject(thread, settings, *chosen.caller)
            take_first_place(agent, selection, settings, follow=follow)
            tell_runtimes(memory, chosen.modules, known_modules, agent)
            process = EnteredProcess(tid, agent, chosen.executable.path, refused=refused)
            for one in planned:
                if one is not None:
                    one.hook(thread, process)
        return process
    finally:
        memory.close()


def choose(
    memory: Memory, call: Callable[[int], int], selection: Selection, known_modules: KnownModules, *, follow: bool
) -> Chosen:
    """Choose the functions of a process that are to be hooked.

    ``call`` calls a function in the process that needs nothing and changes nothing (it finds out what an IFUNC is).
    """
    modules = read_modules(memory.pid)
    executable = _executable(memory.pid, modules)
    known = known_modules.get(executable)
    text = [segment for segment in known.image.segments if segment.executable]
    low = min(segment.address for segment in text) + known.bias(executable)
    high = max(segment.address + segment.memory_size for segment in text) + known.bias(executable)
    choices: dict[str, Choice] = {}
    for module in modules:
        if is_agent(module):
            continue
        if module is executable or selection.touches(module.name):
            choice = _choose_in(module, known_modules.get(module), selection, is_executable=module is executable)
            if choice.flags:
                choices[module.path] = choice
    imports = []
    if selection.libcalls != LibraryCalls.NONE:
        imports = list(_resolved_imports(memory, call, modules, executable, known_modules))
        _choose_imports(imports, selection, known_modules, choices)
    _add_own_hooks(choices, modules, known_modules, follow=follow)
    return Chosen(modules, executable, (low, high - low), choices, imports)


def choose_loaded(module: Module, selection: Selection, known_modules: KnownModules) -> Choice | None:
    """What is chosen of a library that has been loaded later, and own hooks in it; None if that is nothing."""
    if is_agent(module) or not selection.touches(module.name):
        return None
    choice = _choose_in(module, known_modules.get(module), selection, is_executable=False)
    if choice.flags:
        _add_own_hooks({module.path: choice}, [module], known_modules, follow=False)
    return choice if choice.flags else None


def _executable(pid: int, modules: list[Module]) -> Module:
    path = os.readlink(f"/proc/{pid}/exe")
    for module in modules:
        if module.path in (path, path.removesuffix(" (deleted)")):
            return module
    raise StartError(f"{path}: its file is not among its mappings, so its functions cannot be found")


def _choose_in(module: Module, known: KnownModule, selection: Selection, *, is_executable: bool) -> Choice:
    """All functions of a module that the selection wants for their own sake."""
    flags = layout.FLAG_EXECUTABLE if is_executable else 0
    rows = rows_wanted(module, known, selection, is_executable=is_executable)
    return Choice(module, known, dict.fromkeys(rows.tolist(), flags))


def rows_wanted(
    module: Module, known: KnownModule, selection: Selection, *, is_executable: bool
) -> npt.NDArray[np.int64]:
    """The rows of a module that a selection wants for their own sake, in order."""
    if not is_executable:
        selection = selection.of_libraries()
    default = selection.everything or (is_executable and not selection.starts_empty)
    if not selection.rules:
        return np.arange(len(known.functions) if default else 0)
    return np.flatnonzero(known.name_index.wanted(selection, module.name, default=default))


def _resolved_imports(
    memory: Memory,
    call: Callable[[int], int],
    modules: list[Module],
    executable: Module,
    known_modules: KnownModules,
) -> Iterator[tuple[str, Module, int]]:
    """The library functions that the executable imports, where the loader has bound or will bind them, by name."""
    order = _search_order(executable, modules, known_modules)
    known = known_modules.get(executable)
    bias = known.bias(executable)
    for imported in known.imports:
        address = memory.read_word(imported.slot + bias)
        module = _holding(modules, address)
        if module is None or module is executable:  # not bound yet: the slot leads to the executable's own PLT
            found = _look_up(imported.name, order, known_modules)
            if found is None:
                continue
            module, address = found
        target = known_modules.get(module)
        row = _row_at(target, address - target.bias(module))
        if row >= 0 and target.functions.is_ifunc[row]:
            address = call(address)
            row = _row_at(target, address - target.bias(module))
        if row >= 0 and module is not executable and not is_agent(module):
            yield imported.name, module, row


def _choose_imports(
    imports: list[tuple[str, Module, int]],
    selection: Selection,
    known_modules: KnownModules,
    choices: dict[str, Choice],
) -> None:
    flags = layout.FLAG_CALLER if selection.libcalls == LibraryCalls.DIRECT else 0
    default = selection.everything or not selection.starts_empty
    for name, module, row in imports:
        target = known_modules.get(module)
        names = [name, *target.names(row)] if selection.rules else ()
        if not selection.wants(module.name, names, default=default):
            continue
        choice = choices.setdefault(module.path, Choice(module, target))
        choice.flags.setdefault(row, flags)
        choice.names.setdefault(row, name)


def _search_order(executable: Module, modules: list[Module], known_modules: KnownModules) -> list[Module]:
    """The modules in the order in which the loader looks for symbols."""
    order = needed_modules(executable, modules, known_modules)
    return order + [module for module in modules if module not in order]


def needed_modules(executable: Module, modules: list[Module], known_modules: KnownModules) -> list[Module]:
    """The program and all that it needs, breadth first along DT_NEEDED: none of them is ever unloaded."""
    by_name = {module.name: module for module in modules}
    for loaded in modules:
        by_name.setdefault(known_modules.get(loaded).image.soname, loaded)
    order, queue = [executable], deque([executable])
    while queue:
        for needed in known_modules.get(queue.popleft()).image.needed:
            module = by_name.get(needed)
            if module is not None and module not in order:
                order.append(module)
                queue.append(module)
    return order


def _look_up(name: str, order: list[Module], known_modules: KnownModules) -> tuple[Module, int] | None:
    for module in order:
        known = known_modules.get(module)
        address = known.exported(name)
        if address is not None:
            return module, address + known.bias(module)
    return None


def _holding(modules: list[Module], address: int) -> Module | None:
    return next((module for module in modules if module.low <= address < module.high), None)


def _row_at(known: KnownModule, address: int) -> int:
    """The row of the function that starts at an image address, −1 if none does."""
    functions = known.functions
    row = int(np.searchsorted(functions.start, np.uint64(max(address, 0))))
    return row if row < len(functions) and int(functions.start[row]) == address else -1


def _is_c_library(module: Module) -> bool:
    return module.name.startswith(("libc.so", "libc-2", "ld-musl", "libc.musl"))


def _is_loader(module: Module) -> bool:
    return module.name.startswith("ld-")


def _add_own_hooks(
    choices: dict[str, Choice], modules: list[Module], known_modules: KnownModules, *, follow: bool
) -> None:
    """Functions that the agent itself must see.

    These are exec, clone with shared memory, sigaction (for the faults of handlers), the end of the process, the
    loader's notification, and, for the sake of tail calls, what needs its true return address.
    """
    for module in modules:
        known = known_modules.get(module)
        own = [_CLONE, _SIGACTION, *_EXIT_FUNCTIONS, *(_EXEC_FUNCTIONS if follow else ())]
        wanted = own if _is_c_library(module) else []
        wanted += [(_LOADER_NOTE, layout.FLAG_LOADED, 0)] if _is_loader(module) else []
        for name, flag, variant in wanted:
            address = known.exported(name)
            row = -1 if address is None else _row_at(known, address)
            if row >= 0:
                choice = choices.setdefault(module.path, Choice(module, known))
                choice.flags[row] = choice.flags.get(row, layout.FLAG_SILENT) | flag
                choice.variants[row] = variant
        if module.path in choices or _is_c_library(module):
            choice = choices.setdefault(module.path, Choice(module, known))
            for row in np.flatnonzero(known.special).tolist():
                if row in choice.flags:
                    choice.refused[row] = Reason(int(known.refusals[row]))
                choice.flags[row] = layout.FLAG_SILENT | layout.FLAG_TRUE_RETURN


def complete(settings: Settings, chosen: Chosen, known_modules: KnownModules, selection: Selection) -> Settings:
    """The settings with what depends on the process."""
    modules = chosen.modules
    note = 0
    for module in modules:
        address = known_modules.get(module).exported("_r_debug") if _is_loader(module) else None
        if address is not None:
            note = address + known_modules.get(module).bias(module)
    return replace(
        settings,
        loader_note=note,
        ask_when_loaded=int(selection.names_modules()),
        stacks_are_copied=int(any("greenlet" in module.name for module in modules)),
    )


def tell_runtimes(memory: Memory, modules: list[Module], known_modules: KnownModules, agent: Agent) -> None:
    """Where a runtime can be told how to find true return addresses, tell it, unless somebody else has."""
    for module in modules:
        known = known_modules.get(module)
        address = known.exported(V8_RESOLVER)
        if address is not None and memory.read_word(address + known.bias(module)) == 0:
            memory.write(address + known.bias(module), agent.zones["resolver"].to_bytes(8, "little"))


@dataclass(frozen=True)
class _Planned:
    """What is to be hooked of one module."""

    choice: Choice
    request: Request
    plan: ModulePlan

    def hook(self, thread: RemoteThread, process: EnteredProcess) -> None:
        """Hook it."""
        module = self.choice.module
        hooks = hook(thread, module, self.choice.known.bias(module), self.plan, self.request, process.agent)
        count_hooks(hooks, self.choice, self.request, process)


def _planned(choice: Choice, request: Request | None) -> _Planned | None:
    if request is None:
        return None
    return _Planned(choice, request, choice.known.plan(request.rows).for_rows(request.rows))
