"""What is wanted of a process, and what has been done to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from shadowgraph.agent.hooks import Hooks
from shadowgraph.agent.inject import Agent
from shadowgraph.image import Reason
from shadowgraph.ops.known_modules import KnownModule
from shadowgraph.ops.losses import Losses
from shadowgraph.ops.refusals import Refusals
from shadowgraph.target.modules import Module
from shadowgraph.trace.ticks import read_ticks

__all__ = ["Choice", "Chosen", "EnteredProcess"]


@dataclass
class Choice:
    """Rows of one module to be hooked, with flags; ``names`` overrides the table's names for some.

    ``refused`` are rows that were wanted for tracing and are hooked for other reasons only, if at all. ``numbers`` are
    those of the rows to be traced, once they have any. ``present`` are functions that others have hooked already, by
    number, with the flags that are asked for here; ``present_variants`` and ``present_values`` (struct sg_values) go
    with them.
    """

    module: Module
    known: KnownModule
    flags: dict[int, int] = field(default_factory=dict)
    variants: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    refused: dict[int, Reason] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    present: dict[int, int] = field(default_factory=dict)
    present_variants: dict[int, int] = field(default_factory=dict)
    present_values: dict[int, bytes] = field(default_factory=dict)


@dataclass
class EnteredProcess:
    """A process with the agent in it, and our recorder in a ``slot``.

    ``refused`` has what was wanted and could not be hooked.

    ``traced`` are the ids of the functions that are hooked for tracing, not for our own needs. ``began`` is a tick
    before the first call that may be traced. ``losses`` are counted from before the recorder was registered, if given.
    """

    pid: int
    agent: Agent
    program: str
    slot: int = 0
    traced: set[int] = field(default_factory=set)
    hooks: list[Hooks] = field(default_factory=list)
    refused: Refusals = field(default_factory=Refusals)
    began: int = field(default_factory=read_ticks)
    losses: Losses | None = None

    @property
    def hooked(self) -> int:
        """How many functions are hooked for tracing."""
        return len(self.traced)


@dataclass
class Chosen:
    """What is wanted of a process, by module path, and where the text of its executable is.

    ``imports`` are the library functions that the executable imports: name, module and row.
    """

    modules: list[Module]
    executable: Module
    caller: tuple[int, int]
    choices: dict[str, Choice]
    imports: list[tuple[str, Module, int]] = field(default_factory=list)
