"""Which function a thread is about to run, while it is on the entry path or in its return site."""

from __future__ import annotations

from collections.abc import Mapping

from shadowgraph.agent.zones import HookedFunction, Zone, ZoneTable
from shadowgraph.stack.shadow import ShadowStack
from shadowgraph.stack.snapshot import Snapshot

__all__ = ["EntryPath"]

_RCX, _RSP, _R11 = 2, 7, 11
_CALL = 0xE8
_RESTORE_R11 = b"\x4c\x8b\x5c\x24"  # mov r11, [rsp + disp8], from where it is kept while C code is called


class EntryPath:
    """Knows in which register or word the entry path keeps the function's record, from instruction to instruction."""

    def __init__(self, zones: ZoneTable, shadow: ShadowStack, snapshot: Snapshot) -> None:
        self.zones = zones
        self.shadow = shadow
        self.snapshot = snapshot

    def function(self, zone: Zone, pc: int, registers: Mapping[int, int], *, exact: bool) -> HookedFunction | None:
        """The function that is being entered by a thread at ``pc``; not ``exact``: the pc is behind a call."""
        if zone is Zone.SITE_CALLING:
            return self._of_frame(self.zones.frame_of_site(pc))
        if zone is Zone.ENTER_ASIDE:
            called, restored, kept_at = self._around_call()
            if pc == called or (exact and called < pc <= restored):
                return self.zones.hooked(self.snapshot.word(registers[_RSP] + kept_at))
        if not exact:
            return None
        return self.zones.hooked(registers[_R11]) or self._of_frame(registers[_RCX])

    def is_before_frame(self, zone: Zone, pc: int) -> bool:
        """Whether a thread on the entry path is still ahead of the code that gives a tail-called function its frame."""
        if zone is not Zone.ENTER_ASIDE:
            return zone is Zone.ENTER
        return self.zones.entries_aside <= pc < self._around_call()[0]

    def _of_frame(self, address: int) -> HookedFunction | None:
        return self.zones.hooked(self.shadow.frame(address).function) if self.zones.is_frame(address) else None

    def _around_call(self) -> tuple[int, int, int]:
        """Where the call of C code returns to, where r11 is taken back behind it, and from how far above rsp."""
        low, high = self.zones.range_of(Zone.ENTER_ASIDE)
        code = self.snapshot.block(low, high - low)
        for index in range(len(code) - 5):
            behind = index + 5
            target = low + behind + int.from_bytes(code[index + 1 : behind], "little", signed=True)
            if code[index] == _CALL and self.zones.is_agent_text(target):
                restored = code.find(_RESTORE_R11, behind)
                if restored >= 0:
                    return low + behind, low + restored, code[restored + len(_RESTORE_R11)]
        return high, high, 0
