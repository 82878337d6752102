"""Options of which a second one would replace the first in silence, though both may be meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from shadowgraph.errors import UsageError

__all__ = ["WHEN_TWICE", "once"]

WHEN_TWICE = "join the conditions: --when '(…) and (…)'"


def once(name: str, advice: str, *, default: str | None = None, **settings: Any) -> Callable[..., Any]:
    """An option that is refused if it is given twice, with advice; its value is a text, or the default."""

    def only(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
        if len(values) > 1:
            raise UsageError(f"{name} is given {len(values)} times; {advice}")
        return values[0] if values else default

    return click.option(name, multiple=True, callback=only, **settings)
