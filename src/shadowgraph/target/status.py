"""What /proc/PID/status says of a process or thread (proc(5))."""

from __future__ import annotations

__all__ = ["ignores", "is_there", "read_status"]


def read_status(pid: int) -> dict[str, str] | None:
    """All lines, by their names; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/status", errors="replace") as file:
            return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    except OSError:
        return None


def is_there(tid: int) -> bool:
    """Whether a thread has not ended."""
    return (read_status(tid) or {"State": "X"})["State"][:1] not in ("Z", "X")


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal."""
    ignored = int((read_status(pid) or {}).get("SigIgn", "0"), 16)
    return bool(ignored >> (number - 1) & 1)
