"""The programs that are measured (bench/programs), built with what each tracer asks for."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MCOUNT",
    "OUTPUT",
    "PLAIN",
    "PROFILE",
    "ROOT",
    "SOURCES",
    "XRAY",
    "NotBuilt",
    "Variant",
    "build_calls",
    "build_flood",
    "build_layouts",
    "build_many",
    "build_parts",
    "build_predicates",
    "build_served",
    "build_thousand",
]

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "bench" / "programs"
OUTPUT = ROOT / "build" / "bench"

# -fno-ipa-ra: what a function keeps in registers across a call is then the same for all compilers and tracers.
_COMMON = ["-std=c11", "-Wall", "-Wextra", "-O2", "-pthread"]


class NotBuilt(Exception):
    """Why a program could not be built, in one sentence."""


@dataclass(frozen=True)
class Variant:
    """How the traced functions are compiled: the compiler (None: CC or gcc), its options; and the file with main."""

    name: str
    compiler: str | None = None
    options: tuple[str, ...] = ("-fno-ipa-ra",)
    main: str = "calls.c"


PLAIN = Variant("plain")
MCOUNT = Variant("mcount", options=("-fno-ipa-ra", "-pg"))
PROFILE = Variant("profile", options=("-fno-ipa-ra", "-finstrument-functions"))
XRAY = Variant("xray", "clang", ("-fxray-instrument", "-fxray-instruction-threshold=1"), "xray_main.c")


def build_calls(variant: Variant = PLAIN) -> Path:
    """Build `calls` with its traced functions compiled as the variant says; the path of the executable."""
    folder = OUTPUT / variant.name
    folder.mkdir(parents=True, exist_ok=True)
    compiler = _compiler(variant.compiler)
    plain = [*_COMMON, *(("-fno-ipa-ra",) if "-fno-ipa-ra" in variant.options else ())]
    _run([*compiler, *plain, "-fPIC", "-shared", "-Wl,-soname,libcalls.so", "library.c"], folder / "libcalls.so")
    _run([*compiler, *plain, "-c", "-DTWIN=plain", "shapes.c"], folder / "plain.o")
    _run([*compiler, *_COMMON, *variant.options, "-c", "-DTWIN=traced", "shapes.c"], folder / "traced.o")
    objects = [str(folder / name) for name in ("plain.o", "traced.o", "libcalls.so")]
    link = [option for option in variant.options if option in ("-pg", "-fxray-instrument")]
    program = folder / "calls"
    _run([*compiler, *plain, variant.main, "floor.S", *objects, *link, "-Wl,-rpath,$ORIGIN"], program)
    return program


def build_flood() -> Path:
    """Build `flood`."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    compiler, traced, program = _compiler(None), OUTPUT / "flood.o", OUTPUT / "flood"
    _run([*compiler, *_COMMON, "-c", "-DTWIN=traced", "shapes.c"], traced)
    _run([*compiler, *_COMMON, "flood.c", str(traced)], program)
    return program


def build_thousand() -> Path:
    """Build a program with 1,000 functions, which calls one of them."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    source, program = OUTPUT / "thousand.c", OUTPUT / "thousand"
    lines = [f"int function_{number}(int x) {{ return x * {number} + (x >> 3); }}" for number in range(999)]
    source.write_text("\n".join([*lines, "int main(void) { return function_0(0); }", ""]))
    _run([*_compiler(None), "-O1", str(source)], program)
    return program


def build_served() -> Path:
    """Build `served`."""
    calls = build_calls()
    program = OUTPUT / "served"
    _run(
        [
            *_compiler(None),
            *_COMMON,
            "served.c",
            "floor.S",
            *(str(calls.parent / f"{twin}.o") for twin in ("plain", "traced")),
        ],
        program,
    )
    return program


def build_many(number: int) -> Path:
    """Build a program that calls so many functions in turns."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    source, program = OUTPUT / "many.c", OUTPUT / "many"
    lines = [f"int function_{one}(int x) {{ return x * {one} + (x >> 3); }}" for one in range(number)]
    table = ", ".join(f"function_{one}" for one in range(number))
    source.write_text("\n".join([*lines, f"int (*const many[{number}])(int) = {{{table}}};", ""]))
    _run([*_compiler(None), "-O1", "-pthread", f"-DFUNCTIONS={number}", "many_main.c", str(source)], program)
    return program


def build_layouts() -> Path:
    """Build `layouts`."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    program = OUTPUT / "layouts"
    _run([*_compiler(None), *_COMMON, "layouts.c", "layouts_paths.S"], program)
    return program


def build_parts(name: str, *defines: str) -> Path:
    """Build `parts` with some parts of the entry and return path; with AGENT with the agent's own."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    agent = ROOT / "native" / "agent"
    paths = [str(agent / name) for name in ("paths.S", "returns.S")] if "AGENT" in defines else []
    includes = [f"-I{ROOT / 'native' / 'include'}", f"-I{agent}", *(f"-D{define}" for define in defines)]
    program = OUTPUT / f"parts-{name}"
    options = ["-std=gnu11", "-Wall", "-Wextra", "-O2", "-no-pie", *includes]
    _run([*_compiler(None), *options, "parts.c", "parts.S", "floor.S", *paths, str(agent / "sites.S")], program)
    return program


def build_predicates() -> Path:
    """Build the agent's evaluator of predicates as a library, with the agent's own options."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    library = OUTPUT / "predicates.so"
    options = ["-std=c11", "-O2", "-fPIC", "-ffreestanding", "-fno-stack-protector", "-mgeneral-regs-only"]
    includes = [f"-I{ROOT / 'native' / 'include'}", f"-I{ROOT / 'native' / 'agent'}"]
    _run([*_compiler(None), *options, *includes, "-shared", "-nostdlib", "predicates.c"], library)
    return library


def _compiler(name: str | None) -> list[str]:
    words = [name] if name else shlex.split(os.environ.get("CC", "")) or ["gcc"]
    if shutil.which(words[0]) is None:
        raise NotBuilt(f"{words[0]} is not installed")
    return words


def _run(command: list[str], output: Path) -> None:
    done = subprocess.run([*command, "-o", str(output)], cwd=SOURCES, capture_output=True, text=True)
    if done.returncode:
        raise NotBuilt(f"{shlex.join(command)}: {done.stderr.strip()}")
