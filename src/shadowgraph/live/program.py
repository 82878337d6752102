"""One executed program of a target: what is hooked in it, and the users that are on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import ShadowgraphError, StartError, UsageError
from shadowgraph.live.exchanging import Switch, enrol, make_room
from shadowgraph.live.following import Bell, asked
from shadowgraph.live.found import Found
from shadowgraph.live.handlers import Ops
from shadowgraph.live.hooking import Hooking
from shadowgraph.live.recorder import Recorder
from shadowgraph.live.user import Owner, Place, User
from shadowgraph.ops.processes import alone_with, find_process, just_now, runs, sharers, shares, start_time
from shadowgraph.ops.recorder_slot import claim_place, end_recorder, give_back_recorder_slot
from shadowgraph.ops.selection import Selection
from shadowgraph.ops.unseen import unseen_in_child

__all__ = ["Program"]


class Program:
    """One executed program: the process that was entered, and those that have forked from it.

    ``parts`` has for each user of the target who stands for it here: itself in the program that it was registered in.
    """

    def __init__(
        self,
        hooking: Hooking,
        owner: Owner,
        answer: Callable[[Program, Any, list[int]], bool],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """``answer`` answers events about execs for users in these slots, ``post`` has something done in the worker."""
        self.hooking = hooking
        self.parts: dict[User, User] = {}
        self._owner = owner
        self._answer_exec = answer
        self._post = post
        self.is_left = False  # by all its processes, as far as is known
        self._bell: Bell | None = None
        self._is_looking = False
        self._children: list[int] = []  # those that have loaded libraries by themselves

    @property
    def pid(self) -> int:
        """The process that was entered."""
        return self.hooking.pid

    def find(self, part: User, selection: Selection, *, must: bool = True) -> Found:
        """The functions that a user wants, hooked. UsageError if there are none and there ``must`` be."""
        in_use = any(other.has_place for other in self.parts.values())
        with self._hooked_in_children_too(selection, start_time(self.pid) or 0):
            found = self.hooking.find(selection, in_use=in_use, must=must)
        return part.fitted(self._with_those_of_children(found, selection))

    def add(self, user: User, part: User, found: Found) -> None:
        """Put on its functions who stands for a user."""
        registry = self.hooking.registry
        assert registry is not None
        if isinstance(part, Recorder):
            self._prepare(part, found)
        if isinstance(part, Ops):
            self.hooking.bring_in(part)
        try:
            ready = partial(self.hooking.announce, part) if isinstance(part, Ops) else None
            slot = enrol(registry, part, found, execs=self.hooking.follow, ready=ready)
        except BaseException:
            if isinstance(part, Recorder):
                part.give_back()
            if isinstance(part, Ops):
                self.hooking.unload(part)  # nobody has been given its handlers
            raise
        part.registered(Place(self._owner, registry, slot, found))
        self.parts[user] = part
        self._listen(part, found)

    def exchange(self, part: User, found: Found, selection: Selection) -> None:
        """Let a user go over to other functions."""
        if part.place.registry is not self.hooking.registry:
            raise StartError(f"process {self.pid} has executed another program; register {part.name} on that anew")
        make_room(part, found)
        with part.changing:
            switch = Switch.of(part, found, selection.text, execs=self.hooking.follow)
            readings = self.hooking.exchange(switch)
            part.exchanged(found, readings)
        self._listen(part, found)

    def remove(self, user: User) -> User:
        """Take off who stands for a user, and return it."""
        part = self.parts.pop(user)
        place = part.place
        with place.registry.locked():
            if not place.is_ended:
                place.registry.arm(place.slot, on=False)
            part.give_up()
            if not isinstance(part, Recorder):
                place.registry.remove(place.slot)
        if isinstance(part, Ops):
            self.hooking.take_out(part, place)
        if isinstance(part, Recorder):
            end_recorder(part.agent, place.slot)
            part.finish(ended=self.look_whether_left())
        return part

    def look_whether_left(self) -> bool:
        """Whether no process is in it any more; if so, nothing is to be heard of it."""
        registry = self.hooking.registry
        if registry is None or self.is_left:
            return self.is_left
        inode = registry.arena.inode
        self.is_left = not shares(self.pid, inode) and not sharers(inode, 0)
        if self.is_left:
            self.close()
        return self.is_left

    def close(self) -> None:
        """Hear of nothing any more."""
        if self._bell is not None:
            self._bell.close()
            self._bell = None

    def left_by(self, pid: int) -> None:
        """A process of it has executed another program."""
        for part in self.parts.values():
            if part.has_place:
                part.left_by(pid)

    def follow_no_more(self) -> None:
        """Nobody waits for us any more when it loads a library, or executes another program."""
        registry = self.hooking.registry
        if registry is None:
            return
        with registry.locked():
            for part in self.parts.values():
                if part.has_place and part.place.registry is registry:
                    registry.set_follows(part.place.slot, on=False)
                    registry.arena.answer_all(part.place.slot)

    # --- what the agent asks ---

    def _listen(self, part: User, found: Found) -> None:
        """Hear of libraries that are loaded from now on, and of programs that are executed."""
        registry = self.hooking.registry
        follows = (found.follows and self.hooking.can_follow) or self.hooking.follow
        if not follows or registry is None:
            return
        if self._bell is not None and self._bell.registry is not registry:
            self.close()
        if self._bell is None:
            self._bell = Bell(registry, os.getpid(), self._look_later)

    def _look_later(self) -> None:
        """The agent has rung."""
        if not self._is_looking:
            self._is_looking = True
            self._post(self.look)

    def look(self) -> None:
        """See to libraries that threads have loaded and programs that they are about to execute, and let them go on."""
        self._is_looking = False
        if self._bell is None:
            return
        registry = self._bell.registry
        followers = [one for one in self.parts.values() if one.has_place and one.place.registry is registry]
        slots = [part.place.slot for part in followers]
        for event in asked(registry, slots):
            if int(event["kind"]) != layout.EVENT_LOADED:
                if not self._answer_exec(self, event, slots):
                    continue  # it is others' turn
            elif int(event["pid"]) == self.pid:
                for part in followers:
                    self._follow(part)
            else:
                self._follow_child(registry, int(event["pid"]), followers)
            self._answer(registry, event, slots)

    def _answer(self, registry: Registry, event: Any, slots: list[int]) -> None:
        for slot in slots:
            registry.arena.answer(event, slot)

    def _follow_child(self, registry: Registry, number: int, followers: list[User]) -> None:
        """A forked child has loaded something: its code is its own by now."""
        pid = find_process(number, registry.arena.inode)
        if pid is None:
            return  # it has ended
        if pid != self.pid and pid not in self._children:
            self._children.append(pid)
        for part in followers:
            if pid == self.pid:  # which has another number for itself, in a PID namespace
                self._follow(part)
            else:
                self._follow_in_child(pid, part)

    def _follow_in_child(self, pid: int, part: User) -> None:
        with alone_with(self.pid) if runs(self.pid) else nullcontext():
            more = self._find_in_child(pid, part.selection)
            try:
                if more is not None:
                    self._take_on(part, more)
            except (ShadowgraphError, OSError) as error:
                self._note(f"{part.selection.text}: what a forked child has loaded is not followed: {error}")

    def _take_on(self, part: User, more: Found) -> None:
        """Let a user be on more functions, beside those that it is on, in whatever process."""
        registry, slot = part.place.registry, part.place.slot
        present = part.place.functions.only(registry.functions_of(slot))
        if not np.isin(more.numbers, present.numbers).all():
            found = more.beside(replace(present, callers=registry.callers_of(slot)))
            self.exchange(part, part.fitted(found), part.selection)

    def _find_in_child(self, pid: int, selection: Selection) -> Found | None:
        """What a user wants of a forked child's libraries, hooked there; if that cannot be done, it is said."""
        try:
            with alone_with(pid):
                return self.hooking.find_in_child(pid, selection)
        except (ShadowgraphError, OSError) as error:
            registry = self.hooking.registry
            assert registry is not None
            what = (selection, self.hooking.known_modules, registry.zones["kept"], error)
            for problem in unseen_in_child(pid, *what):
                self._note(f"{selection.text}: {problem}")
            return None

    def _with_those_of_children(self, found: Found, selection: Selection) -> Found:
        registry = self.hooking.registry
        if registry is None:
            return found
        self._children = [pid for pid in self._children if shares(pid, registry.arena.inode)]
        for pid in self._children:
            more = self._find_in_child(pid, selection)
            found = found if more is None else found.with_those_of_child(more)
        return found

    @contextmanager
    def _hooked_in_children_too(self, selection: Selection, since: int) -> Iterator[None]:
        """What is hooked meanwhile is hooked as well in those forked before that began no earlier than ``since``."""
        before = self.hooking.times_hooked
        yield
        if self.hooking.times_hooked > before and not self.hooking.is_held:
            for problem in self.hooking.hook_children(since):
                self._note(f"{selection.text}: {problem}")

    def _note(self, note: str) -> None:
        notes = self.hooking.notes
        notes.extend([note] if note not in notes else [])

    def _follow(self, part: User) -> None:
        notes = self.hooking.notes
        selection, said = part.selection, len(notes)
        try:
            with alone_with(self.pid), self._hooked_in_children_too(selection, just_now()):
                self.hooking.renew_loaded()
                found = self.hooking.find(selection, in_use=True)
                del notes[said:]  # what is not there any more, or not yet, has been said
                self._take_on(part, found)
        except UsageError:
            pass  # nothing of it is there
        except (ShadowgraphError, OSError) as error:
            self._note(f"{selection.text}: what was loaded is not followed: {error}")

    def _prepare(self, user: Recorder, found: Found) -> None:
        """Give a recorder a place with buffers of its own."""
        agent = self.hooking.agent
        assert agent is not None and found.chosen is not None
        slot = claim_place(agent, user.settings).slot
        try:
            user.prepare(agent, slot, self.pid, found.chosen)
        except BaseException:
            give_back_recorder_slot(agent, slot)
            raise
