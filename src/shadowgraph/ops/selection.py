"""Which functions are traced: rules in the order they were given, the last one that matches a function wins.

A rule includes or excludes, by any of a function's names: as in the file, or demangled, with or without parameters and
the return type that those of C++ templates begin with (readable_forms.py).
Its pattern is a glob (`parse_*`), or a regular expression after `re:`; `module!function`
restricts it to modules of that name (`libc.so*!mem*`), and a bare module pattern stands for all functions of a module.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

from shadowgraph.errors import UsageError

__all__ = ["LibraryCalls", "Matcher", "Rule", "Selection", "function_rule", "module_rule", "nearest", "nearest_names"]

Matcher = Callable[[str], object]  # what is true of names that match


class LibraryCalls:
    """What is traced of the library functions that the executable imports (--libcalls)."""

    NONE = "none"
    DIRECT = "direct"
    ALL = "all"


@dataclass(frozen=True)
class Rule:
    """Includes or excludes the functions whose module and name match.

    ``module_text`` is the pattern for modules, ``function_text`` that for functions.
    """

    include: bool
    module: Matcher | None
    function: Matcher
    text: str
    module_text: str = ""
    function_text: str = "*"

    def wants_module(self, name: str) -> bool:
        """Whether the rule can match in a module at all."""
        return self.module is None or bool(self.module(name))


@dataclass(frozen=True)
class Selection:
    """The whole choice. ``rules`` empty: the default, all of the executable and what it imports directly.

    ``when`` is a condition on calls (docs/predicates.md).
    """

    rules: Sequence[Rule] = ()
    everything: bool = False
    libcalls: str = LibraryCalls.DIRECT
    when: str | None = None
    matched: set[str] = field(default_factory=set)

    @property
    def starts_empty(self) -> bool:
        """Whether only what a rule includes is traced: so it is if the first rule includes."""
        return bool(self.rules) and self.rules[0].include and not self.everything

    def anew(self) -> Selection:
        """The same, of which nothing has matched yet. Its text may be long: that and its hash are made here, once."""
        hash(self.text)
        fresh = copy(self)
        object.__setattr__(fresh, "matched", set())
        return fresh

    @cached_property
    def text(self) -> str:
        """The choice in a few words."""
        if self.everything and not self.rules:
            return "everything"
        return " ".join(("" if rule.include else "not ") + rule.text for rule in self.rules) or "the executable"

    @property
    def unmatched(self) -> list[Rule]:
        """The rules that have matched no function so far."""
        return [rule for rule in self.rules if rule.text not in self.matched]

    def names_modules(self) -> bool:
        """Whether functions of modules that are loaded later may be wanted."""
        return self.everything or any(rule.include and rule.module is not None for rule in self.rules)

    def waits_for(self, staying: Iterable[str]) -> bool:
        """Whether libraries that are loaded later may have functions that are wanted: others than those that stay.

        A library that is named by its very name and is never unloaded will not come again.
        """
        names = set(staying)
        return self.everything or any(
            rule.include and rule.module is not None and rule.module_text not in names for rule in self.rules
        )

    def touches(self, module: str) -> bool:
        """Whether any function of a library may be wanted for its own sake, not as an import of the executable."""
        return self.everything or any(
            rule.include and rule.module is not None and rule.module(module) for rule in self.rules
        )

    def of_libraries(self) -> Selection:
        """What it says of a library's functions for their own sake, be they called by whom they may.

        A pattern without a module means those that the executable calls; but excluded is excluded everywhere.
        """
        if self.everything:
            return self
        return replace(self, rules=[rule for rule in self.rules if rule.module is not None or not rule.include])

    @property
    def has_matched(self) -> bool:
        """Whether each of its rules has matched something that was looked at."""
        return all(rule.text in self.matched for rule in self.rules)

    def wants(self, module: str, names: Sequence[str], *, default: bool) -> bool:
        """Whether a function with these names is traced. ``default``: it is if no rule says otherwise."""
        wanted = default
        for rule in self.rules:
            if rule.wants_module(module) and any(rule.function(name) for name in names):
                wanted = rule.include
                self.matched.add(rule.text)
        return wanted


def function_rule(text: str, *, include: bool) -> Rule:
    """The rule of --function and --not: `pattern` or `module!pattern`."""
    if "!" in text and not text.startswith("re:"):
        module, _, function = text.partition("!")
        return Rule(include, _matcher(module), _matcher(function), text, module, function)
    return Rule(include, None, _matcher(text), text, "", text)


def module_rule(text: str) -> Rule:
    """The rule of --module: all functions of the modules that match."""
    return Rule(True, _matcher(text), lambda name: True, text, text)


def nearest_names(patterns: Sequence[str], names: Iterable[str]) -> str:
    """What a user may have meant by patterns that match nothing, as the end of a sentence; "" if there is nothing."""
    shown = list(dict.fromkeys(name for pattern in patterns for name in nearest(pattern, names)))[:5]
    return f"; the nearest names are {', '.join(shown)}" if shown else ""


def nearest(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that are most like a pattern, and those that have it as a part."""
    import difflib

    known = list(dict.fromkeys(names))
    plain = pattern.rpartition("!")[2].removeprefix("re:").strip("*^$")
    close = difflib.get_close_matches(plain, known, 3, 0.6)
    return close + [name for name in known if plain and plain.lower() in name.lower()][:3]


def _matcher(pattern: str) -> Matcher:
    if pattern.startswith("re:"):
        try:
            expression = re.compile(pattern[3:])
        except re.error as error:
            raise UsageError(f"{pattern}: is not a regular expression: {error}") from None
        return expression.search
    if not any(character in pattern for character in "*?["):
        return lambda name: name == pattern
    # What is copied from a message is what it says: [abi:cxx11] is a part of names.
    return re.compile(f"{fnmatch.translate(pattern)}|{re.escape(pattern)}\\Z").match
