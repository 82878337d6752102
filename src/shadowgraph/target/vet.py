"""Looking at a program before it is started: what can never be traced is refused in one sentence."""

from __future__ import annotations

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
        reason = f"{program}: cannot be read: {(error.strerror or str(error)).lower()}"
        raise StartError(_for_script(path, program, reason)) from None
    except UsageError as error:
        raise StartError(_for_script(path, program, str(error))) from None
    _refuse_static(image, program)
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


def _refuse_static(image: Image, path: str) -> None:
    if image.interpreter is None:
        raise StartError(f"{path}: is statically linked; only dynamically linked programs can be traced so far")


def _for_script(path: str, program: str, reason: str) -> str:
    return reason if program == path else f"{path} is a script for {program}, which cannot be run: {reason}"
