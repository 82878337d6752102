"""What a process and the helper that works on it say to each other: JSON over a socket, with a file at times."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from shadowgraph.errors import StartError, UsageError

__all__ = ["Channel", "Ended", "answer_of"]

_HEAD = 8


class Ended(Exception):
    """There is nobody at the other end any more."""


class Channel:
    """One end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        """For select()."""
        return self._socket.fileno()

    def close(self) -> None:
        """Nothing more will be said."""
        self._socket.close()

    def send(self, content: dict[str, Any], file: int | None = None) -> None:
        """Send an object, and a file if there is one to go with it."""
        data = json.dumps(content).encode()
        try:
            socket.send_fds(self._socket, [len(data).to_bytes(_HEAD, "little")], [] if file is None else [file])
            self._socket.sendall(data)
        except OSError:
            raise Ended from None

    def receive(self) -> tuple[dict[str, Any], int | None]:
        """Wait for the next object, and the file that came with it."""
        try:
            head, files, _, _ = socket.recv_fds(self._socket, _HEAD, 1)
            for file in files:
                os.set_inheritable(file, False)
            size = int.from_bytes(head + self._exactly(_HEAD - len(head) if head else _HEAD), "little")
            content: dict[str, Any] = json.loads(self._exactly(size))
        except OSError:
            raise Ended from None
        return content, files[0] if files else None

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise Ended
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def answer_of(content: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, or the error that the other end had instead."""
    if "refused" in content:
        kind = {"UsageError": UsageError, "StartError": StartError}[content["refused"]]
        raise kind(content["text"])
    if "failed" in content:
        raise RuntimeError(f"the helper process has failed:\n{content['failed']}")
    return content
