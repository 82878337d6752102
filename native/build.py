"""Compile the native parts of Shadowgraph into src/shadowgraph/_native.

``agent.so`` is what a traced program is given: freestanding, without a C library, loaded into other people's processes.
It is therefore compiled with exactly the options below, whatever CFLAGS or LDFLAGS a distribution or a user sets, and
refused if it needs anything from outside. ``columns.so`` is an ordinary shared library for the controller.

The Makefile, the wheel's build hook (native/build_hook.py) and the tests all use this one file. It needs nothing but a
Python and a C compiler: ``CC`` names another one than gcc.

    python native/build.py [--force] [--output FOLDER]      # compiles only what is older than its sources
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["AGENT", "AGENT_BY_GS", "COLUMNS", "BuildError", "Library", "build", "needs_of", "undefined_symbols_of"]

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"
OUTPUT = ROOT / "src" / "shadowgraph" / "_native"
# The header that users' own handlers are written against.
HANDLERS_INCLUDE = ROOT / "src" / "shadowgraph" / "include"

_PACKAGES = "on Debian and Ubuntu: apt install gcc libc6-dev"


class BuildError(Exception):
    """Why the native parts cannot be built, in one sentence (and what the compiler said below it)."""


@dataclass(frozen=True)
class Library:
    """One shared library: its sources, and how they are compiled and linked."""

    name: str
    folder: str
    compile_options: tuple[str, ...]
    link_options: tuple[str, ...]

    @property
    def sources(self) -> list[Path]:
        """C and assembly files, in the order of their names: the same sources give the same library."""
        return sorted(path for path in (NATIVE / self.folder).iterdir() if path.suffix in (".c", ".S"))

    @property
    def inputs(self) -> list[Path]:
        """All files that the library depends on, this one included."""
        headers = [
            *(NATIVE / self.folder).glob("*.h"),
            *(NATIVE / "include").rglob("*.h"),
            *HANDLERS_INCLUDE.rglob("*.h"),
        ]
        return [*self.sources, *headers, Path(__file__)]


_COMMON = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", f"-I{NATIVE / 'include'}")

# No vector registers (those of the program must stay as they are), no stack protector (its canary is libc's), and the
# thread pointer found without a call: design of the entry path in native/agent/paths.S.
AGENT = Library(
    "agent.so",
    "agent",
    (
        *_COMMON,
        f"-I{NATIVE / 'agent'}",
        f"-I{HANDLERS_INCLUDE}",
        "-g",
        "-ffreestanding",
        "-fno-stack-protector",
        "-mgeneral-regs-only",
        "-fasynchronous-unwind-tables",
        "-ftls-model=initial-exec",
    ),
    (
        "-shared",
        "-nostdlib",
        "-Wl,-z,defs,-z,now,-z,relro,-z,noexecstack,--hash-style=gnu,-soname,shadowgraph-agent.so,--build-id",
    ),
)
# The same, with the thread's state found by the gs base: for loaders that give no static TLS after the start (musl).
AGENT_BY_GS = replace(AGENT, name="agent-gs.so", compile_options=(*AGENT.compile_options, "-DSG_THREAD_BY_GS"))
COLUMNS = Library("columns.so", "columns", (*_COMMON, "-fvisibility=hidden"), ("-shared", "-Wl,-z,defs,-z,noexecstack"))


def build(library: Library, output: Path = OUTPUT, *, force: bool = False) -> bool:
    """Compile a library if it is missing or older than one of its inputs; whether there was anything to do.

    The new file takes the old one's place in one step: running programs keep the file that they have mapped.
    """
    target = output / library.name
    if not force and _is_current(target, library.inputs):
        return False
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise BuildError(f"Shadowgraph runs on x86-64 Linux, not on {sys.platform} {os.uname().machine}")
    compiler = _compiler()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as name:
        folder = Path(name)
        objects = [folder / f"{source.name}.o" for source in library.sources]
        commands = [
            [*compiler, *library.compile_options, "-c", str(source), "-o", str(made)]
            for source, made in zip(library.sources, objects, strict=True)
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, commands))
        made = folder / library.name
        _run([*compiler, *library.link_options, *map(str, objects), "-o", str(made)])
        if library.folder == AGENT.folder:
            _check_freestanding(made)
        os.replace(made, target)
    return True


def _is_current(target: Path, inputs: list[Path]) -> bool:
    """Whether a file exists and is younger than what it is made of."""
    return target.exists() and all(path.stat().st_mtime_ns < target.stat().st_mtime_ns for path in inputs)


def _compiler() -> list[str]:
    """The compiler's command: CC, which may carry options of its own, or gcc."""
    words = shlex.split(os.environ.get("CC", "")) or ["gcc"]
    if shutil.which(words[0]) is None:
        raise BuildError(f"{words[0]}: there is no such compiler; install one ({_PACKAGES}), or name yours in CC")
    return words


def _run(command: list[str]) -> None:
    """Run the compiler; BuildError with its words if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode == 0:
        return
    said = done.stderr.strip()
    if ".h: No such file or directory" in said:
        raise BuildError(f"the C library's headers are missing; install them ({_PACKAGES})\n{said}")
    raise BuildError(f"{shlex.join(command)}: failed\n{said}")


def _check_freestanding(path: Path) -> None:
    """The agent must not make the target load anything, nor depend on what the target happens to have."""
    needed, undefined = needs_of(path), undefined_symbols_of(path)
    if needed or undefined:
        raise BuildError(f"{path.name}: is not freestanding: it needs {', '.join(needed + undefined)}")


# --- the few bytes of ELF that the check reads (System V gABI, chapters 4 and 5; 64-bit little-endian) ---

_SHT_DYNAMIC, _SHT_DYNSYM = 6, 11
_DT_NEEDED = 1


def needs_of(path: Path) -> list[str]:
    """The libraries that a shared object asks the loader for (DT_NEEDED)."""
    entries, names = _table(path.read_bytes(), _SHT_DYNAMIC, "<qQ")
    return [_string(names, value) for tag, value in entries if tag == _DT_NEEDED]


def undefined_symbols_of(path: Path) -> list[str]:
    """The dynamic symbols that a shared object expects others to define, weak ones too."""
    entries, names = _table(path.read_bytes(), _SHT_DYNSYM, "<IBBHQQ")
    return [_string(names, name) for name, _, _, section, _, _ in entries[1:] if section == 0]


def _table(data: bytes, kind: int, entry: str) -> tuple[list[tuple[int, ...]], bytes]:
    """The entries of the first section of a kind, and the string table it is linked to."""
    offset, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + 64 * index) for index in range(count)]
    found = next(section for section in sections if section[1] == kind)
    strings = sections[found[6]]
    body = data[found[4] : found[4] + found[5]]
    return list(struct.iter_unpack(entry, body)), data[strings[4] : strings[4] + strings[5]]


def _string(names: bytes, offset: int) -> str:
    """A NUL-terminated name."""
    return names[offset : names.index(b"\0", offset)].decode(errors="replace")


def main(arguments: list[str] | None = None) -> int:
    """Build both libraries; exit status 1 and one sentence if that is not possible."""
    parser = argparse.ArgumentParser(description="Compile the native parts of Shadowgraph.")
    parser.add_argument("--force", action="store_true", help="compile even what is current")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where to put them (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        for library in (AGENT, AGENT_BY_GS, COLUMNS):
            if build(library, options.output, force=options.force):
                print(f"built {options.output / library.name}")
    except BuildError as error:
        print(f"native/build.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
