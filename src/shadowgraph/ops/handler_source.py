"""Handlers in C: compiled with the system's compiler, or taken from a shared object; checked before a target sees them.

The header that they include, shadowgraph/ops.h, lies within the package. An object that is made from source is
self-contained: it needs no symbol and no library, has no constructors and no thread-local variables, and nothing but
its load address has to be filled in. One that somebody else has built may need a dynamic loader; it says so.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shadowgraph.errors import UsageError
from shadowgraph.ops.handler_object import HandlerObject, read_handlers
from shadowgraph.ops.handler_pool import SPAN

__all__ = ["INCLUDE", "compile_handlers", "load_handlers"]

# For -I: where shadowgraph/ops.h is.
INCLUDE = Path(__file__).resolve().parent.parent / "include"

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_INSTALL = "install one (on Debian and Ubuntu: apt install gcc libc6-dev), name yours in CC, or give a shared object"
_TIME_LIMIT = 300

# For every x86-64 processor, whatever else CC and its distribution have in mind. A stack protector, a checked memcpy,
# or what stands in for a loop would be a call of the program's functions. Only the handlers can be seen from outside,
# so that everything else is bound within the object.
_COMPILE = (
    *("-std=gnu11", "-O2", "-g1", "-Wall", "-fPIC", "-ffreestanding", "-fvisibility=hidden"),
    *("-m64", "-U_FORTIFY_SOURCE", "-fno-stack-protector", "-fcf-protection=none", "-fno-sanitize=all"),
)
_LINK = (
    "-m64",
    "-fno-sanitize=all",
    "-shared",
    "-nostdlib",
    "-Wl,-Bsymbolic,-z,defs,-z,now,-z,noexecstack,--build-id=none",
)

# Code in one piece, and data one span behind it (handler_pool.py).
_IN_UNITS = f"-Wl,-z,noseparate-code,-z,max-page-size={SPAN:#x},-z,norelro"


def compile_handlers(
    source: str, entry: str = "", exit: str = "", options: Sequence[str] = (), file: str = ""
) -> HandlerObject:
    """Compile C source with functions ``entry`` and ``exit``, one of which may be left out.

    ``options`` are further options of the compiler, like -I and -D. ``file`` is where the source comes from, for
    messages and for what it includes; without it it is called <source>. UsageError with the compiler's own words.
    """
    _check_names(entry, exit)
    compiler = _compiler()
    name = os.path.basename(file) or "<source>"
    with tempfile.TemporaryDirectory(prefix="shadowgraph-handler-") as folder:
        own, place = Path(folder), Path(folder) / "source"
        place.mkdir()
        (place / name).write_text(source, encoding="utf-8", errors="surrogateescape")
        (own / "prototypes.h").write_text(_prototypes(entry, exit))
        (own / "support.c").write_bytes((INCLUDE / "handler_support.c").read_bytes())
        # The compiler runs where the source lies, so that its messages have the source's name and no other place.
        quoted = ("-iquote", os.path.dirname(os.path.abspath(file))) if file else ()
        general = [*compiler, *_COMPILE, f"-fdebug-prefix-map={place}=.", f"-I{INCLUDE}"]
        given = name if not name.startswith("-") else f"./{name}"
        command = [*general, *quoted, *options, "-include", "../prototypes.h", "-x", "c", "-c", given]
        warnings = _run([*command, "-o", "../handlers.o"], place, f"{name}: does not compile")
        _run([*general, "-c", "../support.c", "-o", "../support.o"], place, f"{name}: cannot be built")
        objects = ["../handlers.o", "../support.o", "-lgcc", "-o", "../handlers.so"]
        failed = f"{name}: cannot be linked; it can only use what it defines itself"
        try:
            _run([*compiler, *_LINK, _IN_UNITS, *objects], place, failed)
        except UsageError:  # of the linker's options some know few; then it takes more room
            _run([*compiler, *_LINK, *objects], place, failed)
        content = (own / "handlers.so").read_bytes()
    made = read_handlers(content, name, entry, exit, warnings)
    if made.obstacles:
        raise UsageError(f"{name}: {made.obstacles[0]}, which a handler cannot have")
    return made


def load_handlers(path: str, entry: str = "", exit: str = "") -> HandlerObject:
    """Take functions ``entry`` and ``exit`` of a shared object. UsageError if it is none, or has no such functions."""
    _check_names(entry, exit)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {os.strerror(error.errno or 0).lower()}") from None
    return read_handlers(content, path, entry, exit)


def _check_names(entry: str, exit: str) -> None:
    if not entry and not exit:
        raise UsageError("an ops needs a handler: name a function for the entry, for the exit, or both")
    for name in (entry, exit):
        if name and not _IDENTIFIER.fullmatch(name):
            raise UsageError(f"{name!r} is not the name of a function in C")
    if entry == exit:
        raise UsageError(f"{entry}: entry and exit are functions of different types, so they cannot be the same")


def _prototypes(entry: str, exit: str) -> str:
    """So that a handler of another type is a mistake, and one of the right type no warning."""
    lines = ["#include <shadowgraph/ops.h>", "#pragma GCC visibility push(default)"]
    lines += [f"int {entry}(struct sg_call *call);"] if entry else []
    lines += [f"void {exit}(struct sg_call *call);"] if exit else []
    return "\n".join([*lines, "#pragma GCC visibility pop", ""])


def _compiler() -> list[str]:
    """The compiler's command: CC, which may carry options of its own, or the first that there is."""
    given = os.environ.get("CC", "")
    try:
        words = shlex.split(given)
    except ValueError:
        raise UsageError(f"CC={given}: is not a command: a quotation mark is not closed") from None
    if words:
        if shutil.which(words[0]) is None:
            raise UsageError(f"{words[0]}: there is no such C compiler; {_INSTALL}")
        return words
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise UsageError(f"handlers in C need a C compiler, and there is none; {_INSTALL}")


def _run(command: list[str], folder: Path, what: str) -> str:
    """Run the compiler; what it says if it succeeds. UsageError with ``what`` went wrong, and its words below."""
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, cwd=folder, stdin=subprocess.DEVNULL, timeout=_TIME_LIMIT
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{what}: the compiler has not come to an end after {_TIME_LIMIT} seconds") from None
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be run: {os.strerror(error.errno or 0).lower()}") from None
    said = (done.stdout + done.stderr).decode(errors="replace").replace("././", "").strip()
    if done.returncode != 0:
        raise UsageError(f"{what}\n{said}" if said else f"{what}, and {command[0]} does not say why")
    return said
