"""From what the user calls a program to the ELF file that holds its functions."""

from __future__ import annotations

import os

from shadowgraph.errors import UsageError

__all__ = ["find_program_file"]

# The kernel follows so many interpreters of interpreters before it gives up (fs/exec.c, ELOOP).
_DEEPEST = 5
_FIRST_LINE = 256


def find_program_file(name: str) -> tuple[str, list[str]]:
    """The file, and a note for each script on the way to it.

    A name without a slash is looked up in PATH, then in the current folder; a script stands for its interpreter.
    UsageError where there is no such file, or an interpreter is missing.
    """
    path, notes = _locate(name), list[str]()
    for _ in range(_DEEPEST):
        interpreter = _interpreter(path)
        if interpreter is None:
            return path, notes
        found = _locate(interpreter, for_script=path)
        notes.append(f"{path} is a script; these are the functions of its interpreter, {found}")
        path = found
    raise UsageError(f"{name}: its interpreter is a script of a script of a script, deeper than the kernel would go")


def _locate(name: str, for_script: str = "") -> str:
    if "/" not in name:
        import shutil

        found = shutil.which(name)
        if found:
            return found
    if os.path.exists(name):
        return name
    if for_script:
        raise UsageError(f"{for_script} is a script for {name}, and there is no such program")
    where = "" if "/" in name else " in PATH or in the current folder"
    raise UsageError(f"{name}: there is no such program or library{where}{_of_process(name)}")


def _of_process(name: str) -> str:
    """The end of a sentence about a number that is that of a process: which program it runs; else ""."""
    try:
        program = os.readlink(f"/proc/{int(name)}/exe") if name.isdecimal() else ""
    except OSError:
        return ""
    return f"; process {name} runs {program}" if program else ""


def _interpreter(path: str) -> str | None:
    """What the first line of a script names, looking through `env`; None for a file that is no script."""
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            first = file.read(_FIRST_LINE).split(b"\n")[0]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not first.startswith(b"#!"):
        return None
    words = os.fsdecode(first[2:]).split()
    if not words:
        raise UsageError(f"{path} is a script that names no interpreter")
    if os.path.basename(words[0]) != "env":
        return words[0]
    commands = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return commands[0] if commands else words[0]
