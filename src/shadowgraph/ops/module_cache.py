"""What was found out about files in earlier recordings: tables of functions and plans, in files of the user's cache.

A file's entries are found by its build id, size and time of change, where it has no build id by its place as well, and
by what made them: this very code and its decoder. Nothing here may ever be what goes wrong. An entry that is missing,
damaged or of another key is made anew; where nothing can be written there is no cache; and only files that nobody but
the user and the superuser can have written are read.
"""

from __future__ import annotations

import json
import os
import stat
import time
import zlib
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any

from shadowgraph.image import Image
from shadowgraph.image.debugfiles import possible_debug_files
from shadowgraph.ops.column_file import Columns, pack, unpack

__all__ = ["Identity", "ModuleCache", "identify"]

_FORMAT = 1
_LIMIT = 256 << 20
_SUFFIX = ".columns"
_PART = ".part"
_LARGEST = 1 << 30
_HOUR = 3600.0
# A file system that tells time in seconds shows no second change within one.
_COARSE = 2.0


class Identity:
    """What tells a file, as it is now, from all others and from itself at other times."""

    def __init__(self, key: dict[str, Any]) -> None:
        self.key = json.dumps(key, sort_keys=True)
        self.name = f"{str(key['build_id'])[:40] or 'none'}-{zlib.crc32(self.key.encode()):08x}"


def identify(image: Image, opened: str, path: str) -> Identity | None:
    """What an image is known by; None where nothing is sure enough.

    ``opened`` is where it was read and ``path`` what it was loaded as.
    """
    maker = _maker()
    try:
        status = os.stat(opened)
    except OSError:
        return None
    if maker is None or status.st_size != len(image.elf.data):
        return None
    key: dict[str, Any] = {
        "maker": maker,
        "build_id": image.build_id,
        "size": status.st_size,
        "time": status.st_mtime_ns,
        "greenlet": "greenlet" in os.path.basename(image.path),  # see vetting.py
    }
    if not image.build_id:
        if time.time() - status.st_mtime < _COARSE:
            return None
        key["place"] = [path, status.st_dev, status.st_ino, status.st_ctime_ns]
    key["debug_files"] = [_mark(str(file)) for file in possible_debug_files(image)]
    return Identity(key)


def _mark(path: str) -> list[Any]:
    """A file by its place and time; the place alone where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return [path]
    return [path, status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino]


@cache
def _maker() -> str | None:
    """What would make an entry: the files of the layers that read and plan, and the decoder; None if unknown."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    decoder = find_spec("iced_x86")
    marks: list[Any] = [_FORMAT, _mark(decoder.origin) if decoder and decoder.origin else []]
    try:
        for layer in ("image", "patch"):
            with os.scandir(os.path.join(root, layer)) as entries:
                files = sorted((entry.name, entry.stat()) for entry in entries if entry.name.endswith(".py"))
            marks += [[name, status.st_size, status.st_mtime_ns] for name, status in files]
    except OSError:
        return None
    return f"{zlib.crc32(json.dumps(marks).encode()):08x}"


class ModuleCache:
    """The cache of this user; empty for good where there is none."""

    def __init__(self) -> None:
        self._folder = _open_folder()
        self._new: list[tuple[str, str, Columns]] = []

    def __del__(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)

    @property
    def usable(self) -> bool:
        """Whether what is found out now may be of use later."""
        return self._folder >= 0

    def find(self, identity: Identity, kind: str) -> Columns | None:
        """What is known of a file."""
        if self._folder < 0:
            return None
        name = f"{identity.name}.{kind}{_SUFFIX}"
        try:
            block = self._read(name)
        except OSError:
            return None
        columns = unpack(identity.key, block) if block is not None else None
        if columns is not None:
            with suppress(OSError):  # the least recently used go first
                os.utime(name, dir_fd=self._folder)
        return columns

    def keep(self, identity: Identity, kind: str, columns: Columns) -> None:
        """Have something written by :meth:`write`."""
        if self._folder >= 0:
            self._new.append((f"{identity.name}.{kind}{_SUFFIX}", identity.key, columns))

    def write(self) -> None:
        """Write what is new, and remove what is too much. Whatever goes wrong, there is less in the cache then."""
        new, self._new = self._new, []
        if not new or self._folder < 0:
            return
        with suppress(OSError):
            for name, key, columns in new:
                self._write(name, pack(key, columns))
            self._remove_oldest()

    def _read(self, name: str) -> bytes | None:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or not _is_trusted(status) or status.st_size > _LARGEST:
                return None
            with open(file, "rb", closefd=False) as whole:
                return whole.read()
        finally:
            os.close(file)

    def _write(self, name: str, block: bytes) -> None:
        """In one step: a reader sees the old or the new one, never half of it."""
        part = f"{name}.{os.getpid()}{_PART}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(part, flags, 0o600, dir_fd=self._folder)
        try:
            with open(file, "wb") as whole:
                whole.write(block)
            os.rename(part, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=self._folder)
            raise

    def _remove_oldest(self) -> None:
        found, now = [], time.time()
        with os.scandir(self._folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if entry.name.endswith(_SUFFIX):
                    found.append((status.st_mtime, status.st_size, entry.name))
                elif entry.name.endswith(_PART) and now - status.st_mtime > _HOUR:  # of one that was killed
                    os.unlink(entry.name, dir_fd=self._folder)
        size = sum(size for _, size, _ in found)
        for _, one, name in sorted(found) if size > _LIMIT else ():
            os.unlink(name, dir_fd=self._folder)
            size -= one
            if size <= _LIMIT * 3 // 4:
                return


def _is_trusted(status: os.stat_result) -> bool:
    """Whether nobody but us and the superuser can have written it."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _open_folder() -> int:
    """The cache folder, made if need be; −1 if there is none that can be relied on."""
    path = _folder_path()
    if path is None:
        return -1
    try:
        _make(path)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return -1
    if not _is_trusted(os.fstat(folder)):
        os.close(folder)
        return -1
    return folder


def _folder_path() -> str | None:
    """Where it is (XDG Base Directory Specification: relative paths are to be ignored)."""
    if os.environ.get("SHADOWGRAPH_NO_CACHE", "0") not in ("", "0"):
        return None
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "shadowgraph") if os.path.isabs(base) else None


def _make(path: str) -> None:
    """Make a folder, and those that it is in, for us alone; not in what is another user's, as with `sudo`."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    if missing and os.stat(path).st_uid != os.geteuid():
        raise PermissionError
    for folder in reversed(missing):
        os.mkdir(folder, 0o700)
