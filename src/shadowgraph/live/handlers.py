"""Users with code of their own, in C."""

from __future__ import annotations

import os
import re
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.errors import UsageError
from shadowgraph.live.events import EventRing, event_dtype
from shadowgraph.live.found import Found, Numbers
from shadowgraph.live.instances import InstancePool
from shadowgraph.live.making import in_the_making
from shadowgraph.live.user import Place, User
from shadowgraph.ops.handler_code import look_at_pair
from shadowgraph.ops.handler_memory import LoadedHandlers
from shadowgraph.ops.handler_needs import Need, compile_for_needs, flags_of
from shadowgraph.ops.handler_source import load_handlers

__all__ = ["Ops"]

_Batch = npt.NDArray[np.void]

_EVENT_BYTES = 1 << 20
_WAIT_SECONDS = 0.01
_CALL = re.compile(r"\bsg_call\s*\*\s*(?:const\s+)?(\w+)")  # what a handler calls its argument


class Ops(User):
    """Handlers in C at the entry and at the exit of functions (include/shadowgraph/ops.h describes them).

    ``source`` is C that the system's compiler compiles (``file``: where it comes from, for messages and for what it
    includes), or ``path`` a shared object that has been compiled already;
    ``entry`` and ``exit`` name the handlers, one of which may be left out. ``data_size`` bytes (1,024 at most) are the
    handlers' own from the entry of a call to its exit. What is larger comes from a pool: of ``instances`` pieces of
    ``instance_size`` bytes (65,536 at most) each call has one while it lasts, and is missed if none is free.
    ``events`` describes the records that they emit (:func:`numpy.dtype`), for :meth:`events`. Calling handlers from
    source is cheaper if they need no floating point, and if they look neither at time nor duration of the call nor at
    its vector registers; it is cheapest if both are frugal (handler_code.py).
    """

    def __init__(
        self,
        functions: Sequence[str],
        *,
        source: str | None = None,
        path: str | None = None,
        file: str = "",
        entry: str = "",
        exit: str = "",
        data_size: int = 0,
        instance_size: int = 0,
        instances: int = 0,
        events: object = None,
        when: str | None = None,
        name: str = "",
    ) -> None:
        super().__init__(functions, when=when, name=name)
        if (source is None) == (path is None):
            raise UsageError("Ops: either source, the text of handlers in C, or path, a shared object, is needed")
        if not 0 <= data_size <= layout.DATA_LIMIT:
            raise UsageError(
                f"data_size: a user keeps at most {layout.DATA_LIMIT:,} bytes of a call, not {data_size:,}"
            )
        self.data_size = data_size
        self.instances = InstancePool(instances, instance_size)
        self._source = source or ""
        self._dtype = event_dtype(events) if events is not None else None
        if source is not None:
            with in_the_making():
                self.handlers, self._needs = compile_for_needs(source, entry, exit, file)
            self._code = look_at_pair(self.handlers, see_time=Need.TIME in self._needs)
        else:
            assert path is not None
            self.handlers, self._needs = load_handlers(path, entry, exit), Need.ALL
            self._code = look_at_pair(self.handlers, is_known=False)
        self._begin_anew()

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.loaded: LoadedHandlers | None = None
        self.code_number = 0
        self._ring: EventRing | None = None
        self._waiting: list[_Batch] = []  # events of rings that have been given up
        self._dropped = 0
        self._dropped_before = 0
        self._remark = ""
        self._fault = ""
        self._elsewhere: dict[str, int] = {}  # numbers of functions of other programs
        self._named_elsewhere: dict[int, str] = {}
        self._functions: Found | None = None

    # --- its place ---

    def pool_size(self, registry: Registry, numbers: Numbers) -> int:
        """The ring of its events, and its instances."""
        return self._ring_space() + self.instances.space

    def _ring_space(self) -> int:
        return -(-EventRing.space(_EVENT_BYTES) // 64) * 64 if self._dtype is not None else 0

    def row(self, registry: Registry, cells: Cells, numbers: Numbers, at: int) -> UserRow:
        """The handlers' addresses, and what they ask for."""
        assert self.loaded is not None
        self.code_number = (
            int.from_bytes(os.urandom(8), "little") | 1
        )  # no other handlers have it, here or anywhere else
        data_size = self.data_size if self._code.keeps_data else 0  # else nobody can tell
        fields = {
            "code_number": self.code_number,
            "code": self.loaded.base,
            "code_size": self.loaded.size,
            "entry": self.loaded.entry,
            "exit": self.loaded.exit,
            "data_size": data_size,
            "flags": flags_of(self._needs) | self._code.flags,
        }
        if self._dtype is not None:
            self._ring = EventRing(registry.arena, at, _EVENT_BYTES)
            self._ring.begin()
            fields["events"] = at
        if self.instances.count:
            fields |= self.instances.begin(registry.arena, at + self._ring_space())
        keeps = data_size > 0 or self.instances.count > 0
        return UserRow(
            layout.USER_HANDLER,
            self.name,
            self.selection.text,
            at_entry=bool(self.loaded.entry) or keeps or self.when is not None,
            at_exit=bool(self.loaded.exit) or self.instances.count > 0,  # those need a frame
            with_data=keeps,
            with_instances=self.instances.count > 0,
            start_is_timed=self._code.start_is_timed,
            end_is_timed=self._code.end_is_timed,
            time_is_told=self._code.time_is_told,
            is_simple=not self.instances.count and not self._needs & ~Need.TIME,
            is_frugal=self._code.is_frugal and bool(self.loaded.exit) and not self.instances.count,
            fields=fields,
        )

    def registered(self, place: Place) -> None:
        """It has a place now."""
        super().registered(place)
        self._dropped_before = 0
        self._remark = self._fault = ""
        self._elsewhere = {}
        self._named_elsewhere = {}
        self._functions = place.functions

    def make_room(self, place: Place, found: Found) -> None:
        """Know the names of functions before there are events of them."""
        self._functions = found if self._functions is None else found.beside(self._functions)

    @property
    def functions_by_number(self) -> Mapping[int, str]:
        """What the functions are called whose numbers events have."""
        own = {} if self._functions is None else self._functions.labels
        return ChainMap({}, self._named_elsewhere, own)

    def keep(self, place: Place) -> None:
        """Keep the events that nobody has taken yet, and how it went."""
        with self.changing:
            if self._ring is not None and self._dtype is not None:
                self._keep_batch(self._ring.take(self._dtype))
                self._dropped = self._ring.dropped
                self._remark = self._about_sizes(self._ring)
                self._ring = None
            self._fault = self._fault_at(place)

    def _add(self, part: Self) -> None:
        self._waiting += [self._told(part, batch) for batch in part._waiting]
        self._dropped_before += part._dropped
        self._remark = self._remark or part._remark
        self._fault = self._fault or part._fault

    def _told(self, part: Self, batch: _Batch) -> _Batch:
        """Events of another program, with numbers of functions that are none of this one."""
        numbers, places = np.unique(batch["function"], return_inverse=True)
        ours = []
        for number in numbers.tolist():
            label = part.functions_by_number[number]
            ours.append(self._elsewhere.setdefault(label, layout.FUNCTIONS + len(self._elsewhere)))
            if ours[-1] not in self._named_elsewhere:  # others may be looking through it
                self._named_elsewhere = {**self._named_elsewhere, ours[-1]: label}
        batch["function"] = np.array(ours, np.uint32)[places]
        return batch

    # --- what it has to say ---

    def events(self, wait: Callable[[], bool] | None = None) -> Iterator[npt.NDArray[np.void]]:
        """Batches of events as structured arrays: time (ticks), thread, function (a number), and the record's fields.

        Goes on until the user is unregistered or its process has ended; ``wait`` is asked, when there is nothing,
        whether to go on.
        """
        if self._dtype is None:
            raise UsageError(f"{self.name}: emits no events; say what they are: Ops(..., events=[('fd', 'i4')])")
        while True:
            place = self._place
            over = place is None or place.owner.has_ended() or not self.is_registered
            batch = self._next()
            if batch is not None:
                yield batch
                continue
            if over or (wait is not None and not wait()):
                return
            time.sleep(_WAIT_SECONDS)

    def _next(self) -> _Batch | None:
        """Some events that are ready; the others stay for who asks again."""
        with self.changing:
            if not self._waiting:
                self._gather()
            return self._waiting.pop(0) if self._waiting else None

    def _gather(self) -> None:
        """Take the events that are ready, of all programs: at most a ring full of each, however fast they come."""
        with self.changing:
            if self._ring is not None and self._dtype is not None:
                self._keep_batch(self._ring.take(self._dtype))
            for part in self._parts:
                for batch in part._given():
                    self._keep_batch(self._told(part, batch))

    def _given(self) -> list[_Batch]:
        with self.changing:
            self._gather()
            given, self._waiting = self._waiting, []
            return given

    def _keep_batch(self, batch: _Batch) -> None:
        if len(batch):
            self._waiting.append(batch)

    @property
    def dropped(self) -> int:
        """Events for which there was no room."""
        with self.changing:
            own = self._dropped if self._ring is None else self._ring.dropped
            return own + self._dropped_before + sum(part.dropped for part in self._parts)

    @property
    def remark(self) -> str:
        """What is wrong with the events that were taken: that they are not as large as was said; "" if nothing is."""
        with self.changing:
            own = self._remark if self._ring is None else self._about_sizes(self._ring) or self._remark
            return own or next((part.remark for part in self._parts if part.remark), "")

    def _about_sizes(self, ring: EventRing) -> str:
        if not ring.of_other_sizes or self._dtype is None:
            return ""
        number = f"{ring.of_other_sizes:,} event{'s' * (ring.of_other_sizes > 1)}"
        return (
            f"{number} had not the {self._dtype.itemsize} bytes that the described fields have (the last one had "
            f"{ring.other_size}): they were cut, or filled up with zeros"
        )

    @property
    def fault(self) -> str:
        """Why the handlers were switched off: what a handler died of; "" if none has."""
        with self.changing:
            own = self._fault if self._place is None else self._fault_at(self._place) or self._fault
            return own or next((part.fault for part in self._parts if part.fault), "")

    @property
    def unprovided(self) -> str:
        """What the source uses of a call and was not asked for, so that it is 0: memory that is the handlers' own."""
        calls = "|".join({"call", *_CALL.findall(self._source)})
        memory = (
            ("data", "data_size", self.data_size),
            ("instance", "instances and instance_size", self.instances.count),
        )
        used = [
            f"call->{name}, which is 0 without {option}"
            for name, option, given in memory
            if not given and re.search(rf"\b(?:{calls})\s*->\s*{name}\b", self._source)
        ]
        return f"the handlers use {' and '.join(used)}" if used else ""

    def _fault_at(self, place: Place) -> str:
        if not place.registry.has_fault(place.slot):
            return ""
        row = place.registry.user(place.slot)
        address = int(row["fault_address"])
        why = f"; {self.unprovided}" if self.unprovided and address < layout.INSTANCE_LIMIT else ""
        return f"signal {int(row['fault'])} at address {address:#x}{why}"
