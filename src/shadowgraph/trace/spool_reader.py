"""Reading a spool: where each thread's records lie, and what the JSON chunks say.

A spool may end anywhere (its writer was killed, the disk was full, a copy was cut off) and may be damaged in the
middle. What is whole is read; what is not is said in ``problems``, one sentence each.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

from shadowgraph.agent import layout
from shadowgraph.errors import UsageError
from shadowgraph.trace.framing import HEADER_SIZE, MAGIC, RECORDS, SPOOL_VERSION, ChunkHeader, unpack_header

__all__ = ["Spool"]


class Spool:
    """An opened spool, scanned once.

    ``pieces`` maps a thread index to the (offset, length) in bytes of its records, in the order they were written;
    ``thread_process`` maps a thread index to its process index; ``chunks`` maps each JSON kind to its list of
    (process index, content), in order. ``live`` says that its writer still runs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pieces: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.thread_process: dict[int, int] = {}
        self.chunks: dict[str, list[tuple[int, Any]]] = defaultdict(list)
        self.problems: list[str] = []
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
        self.size = os.fstat(self.fd).st_size
        self.live = self._is_locked()
        self._scan()

    def close(self) -> None:
        """Close the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def contents(self, kind: str) -> list[Any]:
        """The contents of all chunks of a kind, whatever process they are of."""
        return [content for _, content in self.chunks.get(kind, [])]

    def _is_locked(self) -> bool:
        """Whether a writer holds its lock."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        return False

    def _scan(self) -> None:
        """Go from header to header; behind damage, look for the next one."""
        offset = 0
        while offset < self.size:
            header = unpack_header(os.pread(self.fd, HEADER_SIZE, offset))
            if header is None:
                offset = self._skip_damage(offset)
                continue
            self._take(header, offset + HEADER_SIZE)
            offset += HEADER_SIZE + header.padded_length
        self._check_version()

    def _take(self, header: ChunkHeader, start: int) -> None:
        """Note one chunk, whose payload begins at ``start``."""
        length = min(header.length, self.size - start)
        if length < header.length and not self.live:
            self.problems.append(f"the file ends within a chunk of {header.kind or 'an unknown kind'}")
        if header.kind == RECORDS:
            length -= length % layout.RECORD_SIZE
            if length > 0:
                self.pieces[header.thread].append((start, length))
                self.thread_process[header.thread] = header.process
        elif length == header.length and header.kind:
            self._take_json(header, os.pread(self.fd, length, start))

    def _take_json(self, header: ChunkHeader, payload: bytes) -> None:
        """Note a JSON chunk, if it is what was written."""
        if zlib.crc32(payload) != header.payload_checksum:
            self.problems.append(f"a chunk of {header.kind} is damaged and was left out")
            return
        self.chunks[header.kind].append((header.process, json.loads(payload)))

    def _skip_damage(self, offset: int) -> int:
        """The offset of the next whole header behind ``offset``, or the end of the file."""
        with mmap.mmap(self.fd, 0, access=mmap.ACCESS_READ) as data:
            found = data.find(MAGIC, offset + 1)
            while found >= 0 and unpack_header(data[found : found + HEADER_SIZE]) is None:
                found = data.find(MAGIC, found + 1)
            end = found if found >= 0 else self.size
            lost = end - offset
            unwritten = found < 0 and not any(data[at : at + 4096].strip(b"\0") for at in range(offset, end, 4096))
        if not unwritten and not (self.live and found < 0):
            self.problems.append(f"{lost} bytes at offset {offset} are damaged and were left out")
        return end

    def _check_version(self) -> None:
        """Refuse what a later version wrote, and what is no spool at all."""
        heads = self.contents("spool")
        if not heads and not self.pieces and not self.chunks and self.size > 0:
            raise UsageError(f"{self.path}: is not a spool of Shadowgraph, or damaged from its first byte")
        if heads and heads[0].get("version", 0) > SPOOL_VERSION:
            raise UsageError(
                f"{self.path}: was written by a newer version of Shadowgraph "
                f"(spool version {heads[0]['version']}, this one reads {SPOOL_VERSION})"
            )
