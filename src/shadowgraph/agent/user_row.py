"""What is registered of a user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["UserRow"]


@dataclass(frozen=True)
class UserRow:
    """The fields of its struct sg_user, and when it takes part.

    ``is_timed``: the clock is read at both ends of its calls; ``time_is_told``: for its entry handler, too.
    """

    kind: int
    name: str
    filter: str = ""
    at_entry: bool = False
    at_exit: bool = False
    shares_counter: bool = False
    with_data: bool = False
    with_instances: bool = False
    is_conditional: bool = False
    is_timed: bool = False
    start_is_timed: bool = False
    end_is_timed: bool = False
    time_is_told: bool = False
    is_simple: bool = False
    is_limited: bool = False
    is_frugal: bool = False
    fields: Mapping[str, int] = field(default_factory=dict)

    def with_pool(self, at: int, size: int) -> UserRow:
        """The row of a user that has so many bytes of the pool."""
        return replace(self, fields={**self.fields, "pool_at": at, "pool_size": size})
