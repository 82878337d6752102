"""What there is to say of a choice of functions: why it is refused, what it missed, where else to look."""

from __future__ import annotations

import os

from shadowgraph.agent.inject import AGENT_PATH, is_agent_path
from shadowgraph.errors import UsageError
from shadowgraph.image import SENTENCES, Reason
from shadowgraph.image.names import AGENT_SONAME
from shadowgraph.ops.function_ids import FunctionIds
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.selection import Selection, nearest_names
from shadowgraph.ops.values import Capture
from shadowgraph.target.modules import read_modules

__all__ = ["largest_library", "nothing_hooked", "refuse_agent", "unmatched", "unused"]

# By which a user may mean the agent's two builds.
_AGENT_NAMES = (AGENT_PATH.name, f"{AGENT_PATH.stem}-gs.so", AGENT_SONAME)


def refuse_agent(selection: Selection, pid: int) -> None:
    """Refuse rules that name the agent (R27), unless the program has a library of that name itself."""
    rules = [rule for rule in selection.rules if rule.include and rule.module_text in _AGENT_NAMES]
    names = {module.name for module in read_modules(pid)} if rules else set()
    for rule in rules:
        if rule.module_text not in names:
            reason = SENTENCES[Reason.SHADOWGRAPH_AGENT]
            raise UsageError(f"{rule.text}: nothing of {rule.module_text} can be hooked: {reason}")


def nothing_hooked(selection: Selection, known_modules: KnownModules, program: str, refused: dict[Reason, int]) -> str:
    """Why no function of a program is left to be hooked, in one sentence."""
    wanted = [rule.text for rule in selection.rules if rule.include]
    if wanted and not selection.matched & set(wanted):
        names = (name for known in known_modules.all() for name in known.readable_names())
        return f"{program}: no function matches {', '.join(wanted)}{nearest_names(wanted, names)}"
    which = f"that match {', '.join(wanted)}" if wanted else "chosen"
    why = max(refused, key=lambda reason: refused[reason], default=None)
    reason = SENTENCES[why] if why is not None else "none is left"
    return f"{program}: the functions {which} cannot be hooked: {reason}; see `shadowgraph functions {program}`"


def largest_library(known_modules: KnownModules, ids: FunctionIds) -> str:
    """The name of the library with the most code of those met that had none of its functions hooked, or nothing."""
    others = [
        known
        for known in known_modules.all()
        if known.path not in ids.traced_modules and not is_agent_path(known.path)  # an earlier recording's
    ]
    sizes = {os.path.basename(known.path): sum(len(text.data) for text in known.image.text) for known in others}
    return max(sizes, key=lambda name: sizes[name], default="")


def unmatched(selection: Selection) -> list[str]:
    """A note for each rule that matched no function."""
    notes = []
    for rule in selection.rules:
        if rule.text not in selection.matched:
            ours = rule.include and rule.module is not None and rule.module(AGENT_PATH.name)
            hint = "; Shadowgraph's own code is never traced" if ours else ""
            notes.append(f"no function matched {rule.text}{hint}")
    return notes


def unused(capture: Capture, captured: int) -> list[str]:
    """A note for each specification of values that was for nothing."""
    notes = [
        f"--args {rule.text!r} matched no traced function" for rule in capture.rules if rule.text not in capture.matched
    ]
    if capture.automatic and not captured:
        notes.append("--auto-args found no debug information for the traced functions (build with -g)")
    return notes
