"""Events of handlers, a line each: what `probe` prints while they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from shadowgraph.view.live import Function

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["event_line", "event_objects"]

_OWN = ("time", "thread", "function")


def event_objects(
    batch: npt.NDArray[np.void], seconds: Callable[[int], float], functions: dict[int, Function]
) -> Iterator[tuple[Function, dict[str, Any]]]:
    """Each event with its function, and as JSON has it: the record's fields are those of its "event".

    ``seconds`` turns ticks into seconds since the start.
    """
    fields = [name for name in batch.dtype.names or () if name not in _OWN]
    columns = [batch[name].tolist() for name in (*_OWN, *fields)]
    for ticks, thread, number, *values in zip(*columns, strict=True):
        function = functions[number]
        event = {name: _plain(value) for name, value in zip(fields, values, strict=True)}
        yield function, {"time": round(seconds(ticks), 9), "thread": thread, **function.identity, "event": event}


def event_line(function: Function, content: dict[str, Any]) -> str:
    """Time, thread, function and fields."""
    fields = "".join(f"  {name}={_shown(value)}" for name, value in content["event"].items())
    return f"{content['time']:14.6f}  {content['thread']:>7}  {function.title}{fields}"


def _plain(value: Any) -> Any:
    """A value of a record: a text ends at its first zero byte."""
    if isinstance(value, bytes):
        return value.partition(b"\0")[0].decode(errors="backslashreplace")
    return value


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)
