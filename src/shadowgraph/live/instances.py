"""Instances: memory that handlers share among the calls that are in flight, a piece for each (struct sg_instances)."""

from __future__ import annotations

from dataclasses import dataclass

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.errors import UsageError

__all__ = ["InstancePool"]

_STEP = layout.INSTANCE_STEP


@dataclass(frozen=True)
class InstancePool:
    """So many instances of so many bytes; none and none if the handlers ask for no such thing."""

    count: int
    size: int

    def __post_init__(self) -> None:
        if not 0 <= self.size <= layout.INSTANCE_LIMIT:
            raise UsageError(
                f"instance_size: an instance has at most {layout.INSTANCE_LIMIT:,} bytes, not {self.size:,}"
            )
        if not 0 <= self.count <= layout.INSTANCES_LIMIT:
            raise UsageError(f"instances: a user has at most {layout.INSTANCES_LIMIT:,} of them, not {self.count:,}")
        if bool(self.count) != bool(self.size):
            raise UsageError("instances and instance_size: how many, and of how many bytes, belong together")
        if self._stride * self.count > layout.INSTANCES_SIZE:
            raise UsageError(
                f"instances: {self.count:,} of {self.size:,} bytes are more than {layout.INSTANCES_SIZE >> 20} MiB"
            )

    @property
    def _stride(self) -> int:
        return -(-self.size // _STEP) * _STEP

    @property
    def space(self) -> int:
        """Bytes of the pool for them, and for what says whose they are."""
        if not self.count:
            return 0
        holders = -(-8 * self.count // _STEP) * _STEP
        return layout.instances_dtype.itemsize + holders + self._stride * self.count

    def begin(self, arena: Arena, at: int) -> dict[str, int]:
        """Make them nobody's at a place in the pool, before any thread knows of them; the fields of struct sg_user."""
        arena.clear_pool(at, self.space)
        return {"instances_at": at, "instances": self.count, "instance_size": self.size}
