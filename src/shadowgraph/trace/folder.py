"""A trace as a folder: what its files are called, its manifest, making and finding one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NoReturn

from shadowgraph.errors import UsageError

__all__ = [
    "CALLS",
    "CALLS_FOOTER",
    "COMPLETE",
    "FORMAT",
    "FUNCTIONS",
    "MANIFEST",
    "PROCESSES",
    "RECORDING",
    "RECOVERED",
    "SPOOL",
    "SUFFIX",
    "THREADS",
    "TRACE_VERSION",
    "FolderError",
    "NewTrace",
    "OldTrace",
    "create_folder",
    "newest_trace",
    "read_manifest",
    "write_manifest",
]

FORMAT = "shadowgraph trace"
TRACE_VERSION = 1
SUFFIX = ".sgt"

MANIFEST = "manifest.json"
SPOOL = "calls.spool"
CALLS = "calls.parquet"
CALLS_FOOTER = "calls.footer"
FUNCTIONS = "functions.parquet"
THREADS = "threads.parquet"
PROCESSES = "processes.parquet"
FILES = (MANIFEST, SPOOL, CALLS, CALLS_FOOTER, FUNCTIONS, THREADS, PROCESSES)

# What a reader relies on in a manifest.
_TYPES: dict[str, type] = {
    **dict.fromkeys(("missed", "dropped", "filtered", "calls"), int),
    **dict.fromkeys(("end", "build_ids", "clock"), dict),
    **dict.fromkeys(("state", "program"), str),
    "problems": list,
}

# The states of a trace.
RECORDING = "recording"
COMPLETE = "complete"
RECOVERED = "recovered"


class FolderError(UsageError):
    """A trace cannot be where it is to be. It gives advice for the command line; ``in_python`` is for who calls us."""

    def __init__(self, problem: str, *, replaceable: bool = False, what: str = "name") -> None:
        replace = "replace it with --force or " if replaceable else ""
        super().__init__(f"{problem}; {replace}choose another {what} with -o")
        self.in_python = f"{problem}; {replace.replace('--force', 'force=True')}choose another path"


def create_folder(path: Path | str, metadata: dict[str, Any], *, force: bool = False) -> Path:
    """Make the folder of a new trace, with a manifest that says it is being recorded.

    ``metadata`` is what is known at the start: program, arguments, settings ... With ``force`` a trace that is there is
    replaced; anything else that is there is refused.
    """
    folder = Path(path)
    if folder.exists() or folder.is_symlink():
        _make_way(folder, force)
    made = False
    try:
        folder.mkdir()
        made = True
        write_manifest(folder, metadata | {"state": RECORDING})
    except OSError as error:
        if made:
            _remove(folder)
        missing = isinstance(error, FileNotFoundError)
        why = f"there is no folder {folder.parent}" if missing else _said(error)
        raise FolderError(f"{folder}: the trace folder cannot be created: {why}", what="place") from None
    return folder


class OldTrace:
    """A trace that is to be replaced, out of the way until it is known that there will be a new one.

    ``path`` need not exist. UsageError where something else is there.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._aside: Path | None = None
        if not self._path.exists() and not self._path.is_symlink():
            return
        _refuse_others(self._path, force=True)
        aside = self._path.with_name(f".{self._path.name}.{os.getpid()}.old")
        try:
            self._path.rename(aside)
        except OSError as error:
            raise UsageError(f"{self._path}: the old trace cannot be replaced: {_said(error)}") from None
        self._aside = aside

    def remove(self) -> None:
        """The new trace has begun."""
        if self._aside is not None:
            _remove(self._aside)
            self._aside = None

    def bring_back(self) -> None:
        """There is no new one; its folder is gone already."""
        if self._aside is not None:
            self._aside.rename(self._path)
            self._aside = None


class NewTrace:
    """The folder of a trace to be recorded, as a context manager: it is undone by an error, unless ``keep`` was called.

    With ``force`` a trace that is there already is replaced, once the new one is kept.
    """

    def __init__(self, path: Path | str, metadata: dict[str, Any], *, force: bool = False) -> None:
        self._old = OldTrace(path) if force else None
        self._kept = False
        try:
            self.folder = create_folder(path, metadata)
        except UsageError:
            self._bring_back()
            raise

    def keep(self) -> None:
        """There is something to be recorded."""
        self._kept = True
        if self._old is not None:
            self._old.remove()

    def __enter__(self) -> NewTrace:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not self._kept:
            self.undo()

    def undo(self) -> None:
        """As if it had not been begun."""
        _remove(self.folder)
        self._bring_back()

    def _bring_back(self) -> None:
        if self._old is not None:
            self._old.bring_back()


def _remove(folder: Path) -> None:
    """Remove a trace that nobody needs, as far as that can be done."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _said(error: OSError) -> str:
    """The system's words, as the end of a sentence."""
    return (error.strerror or str(error)).lower()


def _make_way(folder: Path, force: bool) -> None:
    """Remove a trace that is to be replaced."""
    _refuse_others(folder, force)
    import shutil

    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise UsageError(f"{folder}: the old trace cannot be removed: {_said(error)}") from None


def _refuse_others(folder: Path, force: bool) -> None:
    """UsageError for what is no trace, or may not be replaced."""
    if not folder.is_dir() or folder.is_symlink():
        raise FolderError(f"{folder}: exists and is not a trace folder")
    if any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise FolderError(f"{folder}: is a folder, but not a trace")
    if not force:
        raise FolderError(f"{folder}: the trace folder exists", replaceable=True)
    strangers = sorted(item.name for item in folder.iterdir() if not _is_ours(item.name))
    if strangers:
        raise UsageError(f"{folder}: holds files that are not of a trace ({strangers[0]}); it will not be removed")


def _is_ours(name: str) -> bool:
    """Whether a file of this name belongs to a trace."""
    return name.removesuffix(".part") in FILES


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Replace the manifest in one step: a reader sees the old or the new one, never half of it."""
    part = folder / (MANIFEST + ".part")
    text = json.dumps({"format": FORMAT, "version": TRACE_VERSION} | content, indent=2, ensure_ascii=False)
    part.write_text(text + "\n", encoding="utf-8", errors="surrogateescape")
    os.replace(part, folder / MANIFEST)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a trace; UsageError where there is none, or of a newer version, or damaged.

    A recorder may be killed before it has written a manifest: where there is a spool, an empty one stands for it.
    """
    if not folder.exists():
        other = folder.with_name(folder.name + ".sgt")
        raise UsageError(f"{folder}: there is no such trace" + (f"; {other} is one" if other.is_dir() else ""))
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a trace (a trace is a folder, made by `shadowgraph record`)")
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8", errors="surrogateescape"))
    except FileNotFoundError:
        return _without_manifest(folder, "is missing") or _refuse(folder, f"is not a trace (it has no {MANIFEST})")
    except OSError as error:
        return _refuse(folder / MANIFEST, f"cannot be read: {_said(error)}")
    except (ValueError, RecursionError):
        found = _without_manifest(folder, "is damaged (not JSON)")
        return found or _refuse(folder / MANIFEST, "is damaged (not JSON), and there are no calls beside it")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return _refuse(folder, f"is not a trace (its {MANIFEST} is of another format)")
    version = content.get("version")
    if not isinstance(version, int) or version > TRACE_VERSION:
        return _refuse(
            folder,
            "was recorded by a newer version of Shadowgraph "
            f"(trace version {version}, this one reads up to {TRACE_VERSION}); update Shadowgraph to read it",
        )
    return _sound(content)


def _refuse(path: Path, reason: str) -> NoReturn:
    raise UsageError(f"{path}: {reason}")


def _without_manifest(folder: Path, reason: str) -> dict[str, Any] | None:
    """What stands for a manifest that is lost, if there is a spool or a table of calls to read without it."""
    known = {"format": FORMAT, "version": TRACE_VERSION}
    if (folder / SPOOL).is_file():
        return known | {"state": RECORDING}
    if (folder / CALLS).is_file():
        problem = f"{MANIFEST} {reason}; what program it was, how it ended and how many calls were lost is not known"
        return known | {"state": COMPLETE, "problems": [problem]}
    return None


def _sound(content: dict[str, Any]) -> dict[str, Any]:
    """A manifest without what is not of its type, and a problem for each such key."""
    damaged = [key for key, kind in _TYPES.items() if key in content and type(content[key]) is not kind]
    rest = {key: value for key, value in content.items() if key not in damaged}
    problems = [str(problem) for problem in rest.get("problems", [])]
    if damaged:
        problems.append(f"{MANIFEST} is damaged: what it says of {', '.join(damaged)} was left out")
    return rest | {"problems": problems} if problems else rest


def newest_trace(folder: Path | str = ".") -> Path:
    """The trace in a folder that was recorded last; UsageError if there is none."""
    found = [path for path in Path(folder).glob("*" + SUFFIX) if (path / MANIFEST).exists() or (path / SPOOL).exists()]
    if not found:
        raise UsageError(
            f"there is no trace (*{SUFFIX}) in this folder; name one, or make one with `shadowgraph record PROGRAM`"
        )
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path.name))
