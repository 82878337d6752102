"""Named arrays in one block of bytes that tells what it is and whether it is whole.

    8 bytes   the mark
    u32, u32  the size of the header; CRC-32 of everything behind these 16 bytes
    header    JSON: the key, and of each array its name, type, shape and place
    arrays    each at a multiple of 16

Little-endian throughout.
"""

from __future__ import annotations

import json
import math
import struct
import zlib

import numpy as np
import numpy.typing as npt

__all__ = ["Columns", "pack", "unpack"]

Columns = dict[str, npt.NDArray[np.generic]]

_MARK = b"SGCOLS\0\1"
_START = struct.Struct("<8sII")
_ALIGNMENT = 16
_KINDS = "biuf"  # what numpy calls booleans, integers and floating-point numbers


def pack(key: str, columns: Columns) -> bytes:
    """The block for these arrays; ``key`` is what unpack() will ask for."""
    described, pieces, place = [], [], 0
    for name, array in columns.items():
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        described.append((name, array.dtype.newbyteorder("<").str, array.shape, place))
        pieces += [data, bytes(-len(data) % _ALIGNMENT)]
        place += len(data) + len(pieces[-1])
    header = json.dumps({"key": key, "size": place, "columns": described}).encode()
    header += b" " * (-(_START.size + len(header)) % _ALIGNMENT)
    body = b"".join([header, *pieces])
    return _START.pack(_MARK, len(header), zlib.crc32(body)) + body


def unpack(key: str, block: bytes) -> Columns | None:
    """The arrays of a block, which are views of it; None for one of another key, and for a damaged one."""
    try:
        mark, size, checksum = _START.unpack_from(block)
        body = memoryview(block)[_START.size :]
        if mark != _MARK or zlib.crc32(body) != checksum:
            return None
        header = json.loads(bytes(body[:size]))
        if header["key"] != key or header["size"] != len(body) - size:
            return None
        return {name: _array(body[size:], *described) for name, *described in header["columns"]}
    except (struct.error, ValueError, KeyError, TypeError):
        return None


def _array(data: memoryview, kind: str, shape: list[int], place: int) -> npt.NDArray[np.generic]:
    dtype = np.dtype(kind)
    if dtype.kind not in _KINDS:
        raise ValueError(f"{kind} is no number")
    return np.frombuffer(data, dtype, math.prod(shape), place).reshape(shape)
