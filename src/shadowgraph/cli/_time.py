"""The times that options take."""

from __future__ import annotations

from typing import Any

import click

from shadowgraph.errors import UsageError

__all__ = ["Nanoseconds", "Time"]


class Nanoseconds(click.ParamType[int]):
    """A time as people write it, which may be none at all; nanoseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Nanoseconds from 10us, 1.5ms or 2s."""
        from shadowgraph.trace.times import parse_time

        if isinstance(value, int):
            return value
        try:
            return parse_time(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Time(click.ParamType[float]):
    """A time to wait for; seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds from 10s, 500ms or 2m."""
        if isinstance(value, float):
            return value
        nanoseconds = Nanoseconds().convert(value, param, ctx)
        if not nanoseconds:
            self.fail(f"{value!r} is no time at all", param, ctx)
        return nanoseconds / 1e9
