"""Looking at a program before it is started: what can never be traced is refused in one sentence."""

from __future__ import annotations

import errno
import os

from shadowgraph.errors import StartError, UsageError
from shadowgraph.image import Image, open_image

__all__ = ["interpreter_of_script", "vet_process", "vet_program"]

_SCRIPT_DEPTH = 5  # as many #! lines may lead to each other (Linux: fs/exec.c)


def interpreter_of_script(path: str) -> str | None:
    """The interpreter named by a file's #! line, None if it has none."""
    with open(path, "rb") as file:
        line = file.read(256).split(b"\n", 1)[0]
    if not line.startswith(b"#!"):
        return None
    words = line[2:].split(None, 1)
    return os.fsdecode(words[0]) if words else None


def vet_program(path: str) -> Image:
    """The ELF image that will run for a program or script; StartError if it cannot be traced."""
    program = path
    try:
        for _ in range(_SCRIPT_DEPTH):
            interpreter = interpreter_of_script(program)
            if interpreter is None:
                break
            program = interpreter
        image = open_image(program)
    except OSError as error:
        reason = f"{program}: {_why_unreadable(error)}"
        raise StartError(_for_script(path, program, reason)) from None
    except UsageError as error:
        if interpreter_of_script(program) is None and not _is_elf(program):
            reason = f"{program}: is neither an ELF program nor a script with a #! line"
            advice = "" if program != path else f"; name its interpreter first (sh {path})"
            raise StartError(_for_script(path, program, reason + advice)) from None
        raise StartError(_for_script(path, program, str(error).rstrip("."))) from None
    try:
        _refuse_static(image, program)
    except StartError as error:
        raise StartError(_for_script(path, program, str(error), "traced")) from None
    return image


def vet_process(pid: int) -> None:
    """Look at what a process has exec'ed, before its first instruction; StartError if it cannot be traced."""
    link = f"/proc/{pid}/exe"
    try:
        path = os.readlink(link)
        image = open_image(link)
    except OSError as error:
        raise StartError(
            f"process {pid}: its program cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    except UsageError as error:
        raise StartError(str(error).replace(link, path)) from None
    _refuse_static(image, path)


def _why_unreadable(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "there is no such program"
    if error.errno == errno.EACCES:
        return "its file may not be read by this user, so its functions cannot be found; run shadowgraph as who may"
    return f"cannot be read: {(error.strerror or str(error)).lower()}"


def _is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def _refuse_static(image: Image, path: str) -> None:
    if image.interpreter is None:
        raise StartError(f"{path}: is statically linked; only dynamically linked programs can be traced so far")


def _for_script(path: str, program: str, reason: str, what: str = "run") -> str:
    reason = reason.removeprefix(f"{program}: ")
    return (
        f"{program}: {reason}"
        if program == path
        else f"{path} is a script for {program}, which cannot be {what}: {reason}"
    )
