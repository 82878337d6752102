"""The option -f, by which all commands are told which functions are meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["patterns_option"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def patterns_option(what: str, name: str = "patterns") -> Callable[[_Command], _Command]:
    """Add -f, which may be given several times; ``what`` is said of it in the help."""
    return click.option(
        "-f", "--function", name, multiple=True, metavar="PATTERN", help=f"{what.rstrip('.')} (repeatable)."
    )
