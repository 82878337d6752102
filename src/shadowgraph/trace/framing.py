"""The framing of a spool: how chunks follow each other in `calls.spool`.

A spool is what a recording writes: append-only, and readable to its last whole chunk however the writer ended. It is a
sequence of chunks, each a header of 32 bytes and a payload padded to a multiple of 16:

    offset  size  field
         0     4  magic "SGCH"
         4     2  kind (see KINDS)
         6     2  flags, 0
         8     4  thread index (RECORDS; else 0)
        12     4  process index (RECORDS and OPEN; else 0)
        16     8  length of the payload in bytes, without padding
        24     4  CRC-32 of the payload (0 for RECORDS: drained in bulk, at memory speed)
        28     4  CRC-32 of the 28 bytes before

All integers are little-endian. The payload of RECORDS is raw records (native/include/shadowgraph/records.h) of one
thread; that of every other kind is JSON, padded with spaces. docs/trace-format.md describes the JSON of each kind.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

__all__ = [
    "ALIGNMENT",
    "HEADER_SIZE",
    "KINDS",
    "MAGIC",
    "RECORDS",
    "SPOOL_VERSION",
    "ChunkHeader",
    "pack_header",
    "unpack_header",
]

MAGIC = b"SGCH"
SPOOL_VERSION = 1
ALIGNMENT = 16
RECORDS = "records"

# The order is the number in the file: add at the end, never reorder.
KINDS = (
    "spool",
    RECORDS,
    "metadata",
    "functions",
    "modules",
    "processes",
    "threads",
    "clock",
    "counters",
    "open",
    "values",
    "end",
)

_HEADER = struct.Struct("<4sHHIIQI")
_CHECKSUM = struct.Struct("<I")
HEADER_SIZE = _HEADER.size + _CHECKSUM.size


class ChunkHeader(NamedTuple):
    """What stands before a payload; ``kind`` is a name of KINDS, or "" for a kind of a later version."""

    kind: str
    thread: int
    process: int
    length: int
    payload_checksum: int

    @property
    def padded_length(self) -> int:
        """Bytes from the end of this header to the next one."""
        return -(-self.length // ALIGNMENT) * ALIGNMENT


def pack_header(kind: str, thread: int, process: int, length: int, payload_checksum: int) -> bytes:
    """The 32 bytes before a payload of ``length`` bytes."""
    head = _HEADER.pack(MAGIC, KINDS.index(kind), 0, thread, process, length, payload_checksum)
    return head + _CHECKSUM.pack(zlib.crc32(head))


def unpack_header(data: bytes) -> ChunkHeader | None:
    """The header in 32 bytes, or None where these bytes are not a whole and undamaged header."""
    if len(data) < HEADER_SIZE or data[:4] != MAGIC:
        return None
    if _CHECKSUM.unpack_from(data, _HEADER.size)[0] != zlib.crc32(data[: _HEADER.size]):
        return None
    _, number, _, thread, process, length, payload_checksum = _HEADER.unpack_from(data)
    kind = KINDS[number] if number < len(KINDS) else ""
    return ChunkHeader(kind, thread, process, length, payload_checksum)
