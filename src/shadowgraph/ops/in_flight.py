"""The calls in flight, as the shared half of the shadow frames tells them (struct sg_open in arena.h)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena

__all__ = [
    "START_MASK",
    "InFlight",
    "calls_in_flight",
    "forget_calls",
    "open_row",
    "places_in_flight",
    "take_off_recorder",
    "threads_in_flight",
]

START_MASK = (1 << layout.START_BITS) - 1
_FUNCTION_MASK = (1 << layout.FUNCTION_BITS) - 1
_DEPTH_MASK = (1 << layout.DEPTH_BITS) - 1


class InFlight(NamedTuple):
    """A call in flight: its place in the table of open calls, its start as it stands there, its function."""

    place: int
    start: int
    function: int


def places_in_flight(arena: Arena, entries: list[int]) -> npt.NDArray[np.intp]:
    """Places of the open calls of the threads with these entries, among them those that are nobody's any more."""
    chunks = arena.chunks
    taken = np.flatnonzero(chunks["state"] == 1)
    mine = taken[np.isin(chunks["thread"][taken], entries)]
    places = (mine[:, None] * layout.BLOCK_FRAMES + np.arange(layout.BLOCK_FRAMES)).ravel()
    found: npt.NDArray[np.intp] = places[arena.open_calls["function"][places] != 0]
    return found


def calls_in_flight(arena: Arena, entries: list[int], slot: int) -> list[tuple[int, InFlight]]:
    """A recorder's calls in flight of some threads, each with the entry of its thread.

    One that returns while it is read is left out: its place does not read the same twice.
    """
    places = places_in_flight(arena, entries)
    owners = arena.chunks["thread"][places // layout.BLOCK_FRAMES]
    once, twice = arena.open_calls[places], arena.open_calls[places]
    rows = zip(places.tolist(), owners.tolist(), once.tolist(), twice.tolist(), strict=True)
    return [
        (owner, InFlight(place, call[0], call[1] & _FUNCTION_MASK))
        for place, owner, call, again in rows
        if call == again and call[1] & _FUNCTION_MASK and _users_of(call) >> slot & 1
    ]


def _users_of(call: tuple[int, ...]) -> int:
    """The users of a row of struct sg_open: what the plain path has entered is that of slot 0."""
    return call[2] if call[1] & layout.OPEN_USERS else 1


def take_off_recorder(arena: Arena, entries: list[int], slot: int) -> None:
    """Calls in flight of some threads, which stand still, are not this recorder's from now on; others keep theirs."""
    calls, places = arena.open_calls, places_in_flight(arena, entries)
    marked = calls["function"][places] & np.uint64(layout.OPEN_USERS) != 0
    calls["users"][places[marked]] &= np.uint64(~(1 << slot) & (1 << 64) - 1)
    if slot == 0:
        plain = places[~marked]
        calls["users"][plain] = 0
        calls["function"][plain] |= np.uint64(layout.OPEN_SLOW | layout.OPEN_USERS)


def threads_in_flight(arena: Arena) -> set[int]:
    """The entries of threads that have any call in flight."""
    calls = arena.open_calls["function"].reshape(-1, layout.BLOCK_FRAMES)
    taken = arena.chunks["state"] == 1
    taken[taken] = calls[taken].any(axis=1)  # of the others not one page is touched
    return set(arena.chunks["thread"][taken].tolist())


def forget_calls(arena: Arena, entries: list[int]) -> None:
    """The threads' processes have ended: their part of the table is free."""
    chunks = arena.chunks
    for chunk in np.flatnonzero((chunks["state"] == 1) & np.isin(chunks["thread"], entries)).tolist():
        calls = arena.open_calls[chunk * layout.BLOCK_FRAMES : (chunk + 1) * layout.BLOCK_FRAMES]
        calls["function"] = 0
        calls["start"] = 0
        chunks["state"][chunk] = 0


def open_row(thread: int, call: InFlight, now: int) -> dict[str, int]:
    """A call in flight as the spool tells of it, ``thread`` being the number in the trace."""
    depth = _depth(call.start, now)
    return {"thread": thread, "start": call.start & START_MASK, "function": call.function, "depth": depth}


def _depth(place: int, now: int) -> int:
    """The depth in q0 of a record whose start is the last possible one before ``now`` (see records.h)."""
    start = now - ((now - place) & START_MASK)
    return ((place - start) >> layout.START_BITS) & _DEPTH_MASK
