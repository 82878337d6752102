"""Whether a thread runs with a hardware shadow stack (CET SHSTK)."""

from __future__ import annotations

__all__ = ["has_shadow_stack", "in_features"]

# Since Linux 6.6; the line is missing elsewhere (arch/x86/kernel/cpu/proc.c, Documentation/arch/x86/shstk.rst).
_FEATURES = "x86_Thread_features:"
_SHADOW_STACK = "shstk"


def has_shadow_stack(tid: int) -> bool:
    """Whether returns of this thread are checked. The C library turns that on before a program's entry point."""
    with open(f"/proc/{tid}/status", errors="replace") as file:
        return in_features(file.read())


def in_features(status: str) -> bool:
    """The same from the content of /proc/TID/status."""
    lines = [line.split() for line in status.splitlines()]
    return any(words[0] == _FEATURES and _SHADOW_STACK in words[1:] for words in lines if words)
