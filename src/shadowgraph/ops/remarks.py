"""What there is to say of a choice of functions: why it is refused, what it missed, where else to look."""

from __future__ import annotations

import os
import re
from collections.abc import Container

from shadowgraph.agent.inject import AGENT_PATH, is_agent_path
from shadowgraph.errors import ShadowgraphError, StartError, UsageError
from shadowgraph.image import SENTENCES, Reason
from shadowgraph.image.names import AGENT_SONAME
from shadowgraph.ops.choices import Chosen
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.refusals import Refusals
from shadowgraph.ops.selection import Rule, Selection
from shadowgraph.ops.suggestions import near_modules, suggested
from shadowgraph.ops.values import Capture
from shadowgraph.target.modules import read_modules

__all__ = [
    "is_runtime",
    "largest_library",
    "nothing_hooked",
    "refuse_agent",
    "refuse_place_in_use",
    "unused",
    "why_unmatched",
]

# By which a user may mean the agent's two builds.
_AGENT_NAMES = (AGENT_PATH.name, f"{AGENT_PATH.stem}-gs.so", AGENT_SONAME)

_RUNTIMES = re.compile(r"(ld|libc|libm|libpthread|libdl|librt|libutil|libgcc_s|libstdc)[-.+]")
_MOST_NAMES = 12
_COMPARED_NAMES = 30_000  # which takes some tenths of a second


def refuse_agent(selection: Selection, pid: int) -> None:
    """Refuse rules that name the agent (R27), unless the program has a library of that name itself."""
    rules = [rule for rule in selection.rules if rule.include and rule.module_text in _AGENT_NAMES]
    names = {module.name for module in read_modules(pid)} if rules else set()
    for rule in rules:
        if rule.module_text not in names:
            reason = SENTENCES[Reason.SHADOWGRAPH_AGENT]
            raise UsageError(f"{rule.text}: nothing of {rule.module_text} can be hooked: {reason}")


def nothing_hooked(
    selection: Selection, known_modules: KnownModules, program: str, refused: Refusals, script: str = ""
) -> ShadowgraphError:
    """Why no function of a program is left to be hooked: a pattern that means nothing, or what cannot be.

    ``script`` is what the user has named, if the program but interprets it.
    """
    named = f"{script} is a script for {program}" if script else program
    wanted = [rule.text for rule in selection.rules if rule.include]
    if wanted and not selection.matched & set(wanted):
        theirs = [known for known in known_modules.all() if not is_agent_path(known.path)]
        rules = [rule for rule in selection.rules if rule.include]
        where = [known for known in theirs if any(rule.wants_module(os.path.basename(known.path)) for rule in rules)]
        return UsageError(f"{named}: no function matches {', '.join(wanted)}{suggested(rules, where)}")
    which = f"that match {', '.join(wanted)}" if wanted else "chosen"
    why = refused.foremost
    reason = SENTENCES[why] if why is not None else "none is left"
    return StartError(
        f"{named}: the functions {which} cannot be hooked: {reason}; see `shadowgraph functions {program}`"
    )


def refuse_place_in_use(selection: Selection, chosen: Chosen, refused: Refusals) -> None:
    """StartError if nothing is wanted but short functions that came too late."""
    if refused.reasons[Reason.PLACE_IN_USE] and not any(choice.numbers for choice in chosen.choices.values()):
        sentence = SENTENCES[Reason.PLACE_IN_USE]
        texts = ", ".join(rule.text for rule in selection.rules)
        raise StartError(f"{chosen.executable.path}: the functions that match {texts} cannot be hooked now: {sentence}")


def largest_library(known_modules: KnownModules, but: Container[str]) -> str:
    """The name of the library that most of a program's code may be in, but for those with these paths; "" for none.

    It is the one with the most code of those that the program itself asks for, as python3 asks for libpython and not
    for what it loads later, runtimes of languages apart; else the one with the most code of all that were met.
    """
    met = [known for known in known_modules.all() if not is_agent_path(known.path)]  # an earlier recording's
    others = [known for known in met if known.path not in but and not _is_loader(known.path)]
    asked_for = {os.path.basename(name) for known in met if known.path in but for name in known.image.needed}
    own = [known for known in others if asked_for & {os.path.basename(known.path), known.image.soname}]
    others = [known for known in own if not is_runtime(os.path.basename(known.path))] or others
    sizes = {os.path.basename(known.path): sum(len(text.data) for text in known.image.text) for known in others}
    return max(sizes, key=lambda name: sizes[name], default="")


def _is_loader(path: str) -> bool:
    """Whether a file is glibc's loader, in which no program spends its time; musl's is its C library, too."""
    return os.path.basename(path).startswith(("ld-linux", "ld-2.", "ld.so"))


def is_runtime(library: str) -> bool:
    """Whether a library, by its file's name, is the C library or another that comes with a compiler."""
    return _RUNTIMES.match(library) is not None


def why_unmatched(rule: Rule, known_modules: KnownModules) -> str:
    """The sentence about a rule that matched no function: what there was instead."""
    if rule.include and rule.module is not None and rule.module(AGENT_PATH.name):
        return f"no function matched {rule.text}; Shadowgraph's own code is never traced"
    modules = {os.path.basename(known.path): known for known in known_modules.all() if not is_agent_path(known.path)}
    there = [known for name, known in modules.items() if rule.wants_module(name)]
    if not there:
        others = f" and {len(modules) - _MOST_NAMES:,} more" if len(modules) > _MOST_NAMES else ""
        there_were = f"there were {', '.join(list(modules)[:_MOST_NAMES])}{others}"
        return f"no module matched {rule.module_text}; {there_were}{near_modules(rule, list(modules.values()))}"
    # Names that were not read to choose by are not read to give advice: the program has ended, and its user waits.
    read = [known for known in there if "functions" in vars(known)]
    few = sum(len(known.functions) for known in read) < _COMPARED_NAMES
    return f"no function matched {rule.text}{suggested([rule], read) if few else ''}"


def unused(capture: Capture, captured: int) -> list[str]:
    """A note for each specification of values that was for nothing."""
    notes = [
        f"--args {rule.text!r} matched no traced function" for rule in capture.rules if rule.text not in capture.matched
    ]
    if capture.automatic and not captured:
        notes.append("--auto-args found no debug information for the traced functions (build with -g)")
    return notes
