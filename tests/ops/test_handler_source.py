"""Handlers in C: compiled, checked, found, and refused with the compiler's words and the lines of the user's source."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import struct
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shadowgraph.errors import UsageError
from shadowgraph.ops.handler_object import HandlerObject
from shadowgraph.ops.handler_source import INCLUDE, compile_handlers, load_handlers
from tests.support.elf_files import compile_text
from tests.support.native import ROOT

HANDLERS = r"""
struct seen { uint64_t started, size; double scaled; };
static uint64_t calls;
static const char *const names[] = {"read", "write"};

int on_entry(struct sg_call *call)
{
    struct seen *seen = call->data;
    seen->started = call->time;
    seen->size = (uint64_t)sg_arg(call, 2) + (uint64_t)sg_arg(call, 7);
    seen->scaled = sg_farg(call, 1) * 1.5 + sg_farg_float(call, 2);
    calls++;
    return calls == 1 && strcmp(names[1], (const char *)sg_arg(call, 1)) == 0;
}

void on_exit(struct sg_call *call)
{
    struct seen seen = *(struct seen *)call->data;
    if (sg_emit(call, &seen, sizeof seen))
        memcpy(call->data, &call->result_high, 8);
    seen.started = (uint64_t)sg_result(call) + (uint64_t)sg_fresult(call) + (uint64_t)sg_fresult_float(call);
    sg_emit(call, &seen.started, 8);
}
"""
HEAD = "#include <shadowgraph/ops.h>\n#include <string.h>\n"


@pytest.fixture(autouse=True)
def _plain_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.delenv("CC", raising=False)


@cache
def call_dtype() -> np.dtype[np.void]:
    """struct sg_call as the compiler lays it out."""
    spec = importlib.util.spec_from_file_location("generate_layout", ROOT / "native" / "generate_layout.py")
    assert spec is not None and spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    names: dict[str, Any] = {}
    exec(generator.generate(INCLUDE), names)
    found = names["call_dtype"]
    assert isinstance(found, np.dtype)
    return found


class Loaded:
    """An object's handlers, to be called here."""

    def __init__(self, made: HandlerObject, folder: Path) -> None:
        path = folder / "loaded.so"
        path.write_bytes(made.content)
        self._library = ctypes.CDLL(str(path))
        names = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
        base = min(int(words[0].split("-")[0], 16) for words in names)
        take = ctypes.c_void_p
        self.entry: Callable[[bytes], int] = ctypes.CFUNCTYPE(ctypes.c_int, take)(base + (made.entry or 0))
        self.exit: Callable[[bytes], None] = ctypes.CFUNCTYPE(None, take)(base + (made.exit or 0))


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_handlers_see_the_call_and_hand_on_records(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CC", compiler)
    made = compile_handlers(HEAD + HANDLERS, "on_entry", "on_exit")
    assert (made.obstacles, made.warnings) == ((), "")
    loaded = Loaded(made, tmp_path)
    records: list[bytes] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    def emit(call: int, record: int, size: int) -> int:
        records.append(ctypes.string_at(record, size))
        return len(records) == 1

    name = ctypes.create_string_buffer(b"write")
    data, stack = np.zeros(4, np.uint64), np.array([0, 30], np.uint64)
    integers = np.array([0, ctypes.addressof(name), 12, 0, 0, 0], np.uint64)
    vectors = np.zeros((8, 16), np.uint8)
    vectors[1, :8] = list(struct.pack("<d", 3.0))
    vectors[2, :4] = list(struct.pack("<f", 0.25))
    call = np.zeros(1, call_dtype())
    call["time"], call["data"], call["data_size"] = 777, address(data), 32
    call["arguments"], call["stack"], call["vectors"] = address(integers), address(stack), address(vectors)
    call["emit"] = ctypes.cast(emit, ctypes.c_void_p).value
    assert loaded.entry(address(call)) == 1
    assert loaded.entry(address(call)) == 0, "its variables last from call to call"
    for field in ("arguments", "stack"):
        call[field] = 0
    results = np.zeros((2, 16), np.uint8)
    results[0, :8] = list(struct.pack("<d", 1000.0))
    call["result"], call["result_high"], call["vectors"] = 5, 99, address(results)
    loaded.exit(address(call))
    assert struct.unpack("<QQd", records[0]) == (777, 42, 4.75)
    assert struct.unpack("<Q", records[1]) == (1005,)
    assert int(data[0]) == 99


def test_what_compilers_call_is_there(tmp_path: Path) -> None:
    made = compile_handlers(
        HEAD
        + r"""
struct large { char text[600]; };
static struct large kept;
static int check(const char *text, const char *other)
{
    char room[64];
    memset(room, 'x', sizeof room);
    memcpy(room, text, strlen(text) + 1);
    memmove(room + 2, room, 8);
    memmove(room, room + 1, 8);
    return memcmp(room, "babcdef", 8) == 0 && strncmp(text, other, 3) == 0 && strcmp(text, other) < 0 &&
           strcmp(other, text) > 0 && strnlen(text, 4) == 4 && strcmp("\x80", "a") > 0 && room[10] == 'x';
}
int on_entry(struct sg_call *call)
{
    struct large copy = *(struct large *)call->data;
    for (int i = 0; i < 600; i++)
        copy.text[i] ^= kept.text[i];
    kept = copy;
    unsigned __int128 wide = (unsigned __int128)call->time * call->time;
    return check("abcdef", "abcx") && (uint64_t)(wide / (call->function + 3)) == 0xaaaaaaaaaaaaaaabull;
}
""",
        "on_entry",
    )
    data, call = np.zeros(600, np.uint8), np.zeros(1, call_dtype())
    call["data"], call["time"] = address(data), 2**64 - 1
    assert (2**64 - 1) ** 2 // 3 % 2**64 == 0xAAAAAAAAAAAAAAAB
    assert Loaded(made, tmp_path).entry(address(call)) == 1
    assert made.exit is None


COPYING = """
int on_entry(struct sg_call *call)
{
    char room[64];
    memcpy(room, call->data, sg_arg(call, 1));
    return memcmp(room, "abc", sg_arg(call, 2));
}
"""


@pytest.mark.parametrize(
    "command",
    [
        "gcc -D_FORTIFY_SOURCE=2 -fstack-protector-all -fcf-protection=full",
        "gcc -fsanitize=address,undefined",
        "gcc -m32",
        "clang -D_FORTIFY_SOURCE=2 -fstack-protector-all",
        "musl-gcc",
    ],
)
def test_what_a_distribution_makes_of_its_compiler_does_no_harm(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = command.split(maxsplit=1)[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CC", command)
    assert compile_handlers(HEAD + COPYING, "on_entry").obstacles == ()


def test_the_example_in_the_header_is_one() -> None:
    comment = (INCLUDE / "shadowgraph" / "ops.h").read_text().partition("*/")[0]
    example = "\n".join(line[7:] for line in comment.splitlines() if line.startswith(" *     "))
    made = compile_handlers(example, "on_entry", "on_exit")
    assert made.entry and made.exit
    assert (made.obstacles, made.warnings) == ((), "")


def test_the_header_is_complete_in_c_and_in_cpp_without_warnings() -> None:
    for compiler, name in (
        ("gcc", "sample.c"),
        ("g++", "sample.cpp"),
        ("clang", "sample.c"),
        ("clang++", "sample.cpp"),
    ):
        if shutil.which(compiler) is None:
            continue
        language = "c++" if name.endswith("pp") else "c"
        command = [
            compiler,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            f"-I{INCLUDE}",
            "-x",
            language,
            "-fsyntax-only",
            "-",
        ]
        done = subprocess.run(command, input="#include <shadowgraph/ops.h>\n", capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


# --- mistakes ---

GOOD = "int on_entry(struct sg_call *call) { return kept++; }\n"
MISTAKES = [
    ("int on_entry(struct sg_call *call)\n{\n    return foo;\n}\n", "<source>:3:12: error:", "foo"),
    ("void on_entry(struct sg_call *call)\n{\n}\n", "<source>:1:6: error:", "conflicting types for"),
    ("static int on_entry(struct sg_call *call)\n{ return 1; }\n", "<source>:1:12: error:", "static declaration of"),
    ("int on_entry(int number) { return number; }\n", "<source>:1:5: error:", "conflicting types for"),
    ("#include <no_such.h>\n", "<source>:1:10: fatal error:", "no_such.h"),
    ("int on_entri(struct sg_call *call) { return 0; }", "there is no function on_entry", "did you mean on_entri?"),
    (
        'int puts(const char *);\n\nint on_entry(struct sg_call *call)\n{\n    return puts("x");\n}\n',
        "<source>:5: undefined reference to `puts'",
        "it can only use what it defines itself",
    ),
    (f"static __thread int kept;\n{GOOD}", "cannot be linked", "__tls_get_addr"),
    (
        f"static volatile int kept;\n__attribute__((constructor)) static void begin(void) {{ kept = 1; }}\n{GOOD}",
        "it has constructors",
        "which a handler cannot have",
    ),
    (
        f"static volatile int kept;\n__attribute__((destructor)) static void end(void) {{ kept = 1; }}\n{GOOD}",
        "it has destructors",
        "which a handler cannot have",
    ),
]


@pytest.mark.parametrize(("source", "first", "second"), MISTAKES)
def test_a_mistake_is_told_with_the_line_of_the_source(source: str, first: str, second: str) -> None:
    with pytest.raises(UsageError) as raised:
        compile_handlers(source, "on_entry")
    assert str(raised.value).startswith("<source>: ")
    assert first in str(raised.value)
    assert second in str(raised.value)
    assert "/tmp" not in str(raised.value).replace("/usr", "")


def test_a_source_from_a_file_has_that_files_name_and_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("#define ANSWER 1\n")
    source = '#include "mine.h"\nint on_entry(struct sg_call *call) { return ANSWER; }\n'
    assert compile_handlers(source, "on_entry", file=str(tmp_path / "probe.c")).name == "probe.c"
    with pytest.raises(UsageError, match=r"^<source>: does not compile\n<source>:1:10: fatal error: mine.h"):
        compile_handlers(source, "on_entry")
    with pytest.raises(UsageError, match=r"-probe.c:1:1: error"):
        compile_handlers("?", "on_entry", file=str(tmp_path / "-probe.c"))


def test_warnings_are_kept_and_options_are_the_compilers() -> None:
    source = "int on_entry(struct sg_call *call)\n{\n    int unused;\n    return VALUE;\n}\n"
    made = compile_handlers(source, "on_entry", options=["-DVALUE=0"])
    assert "<source>:3:9: warning: unused variable" in made.warnings
    with pytest.raises(UsageError, match="<source>: does not compile"):
        compile_handlers(source, "on_entry", options=["-DVALUE=0", "-Werror"])


def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    compile_handlers("int on_entry(struct sg_call *call) { return 0; }", "on_entry")
    with pytest.raises(UsageError):
        compile_handlers("?", "on_entry")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("entry", "exit", "sentence"),
    [
        ("", "", "an ops needs a handler"),
        ("on entry", "", "'on entry' is not the name of a function in C"),
        ("1st", "", "'1st' is not the name of a function in C"),
        ("same", "same", "same: entry and exit are functions of different types"),
    ],
)
def test_names_that_cannot_be_are_refused(entry: str, exit: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        compile_handlers("", entry, exit)
    with pytest.raises(UsageError, match=sentence):
        load_handlers("no-such-file.so", entry, exit)


def test_a_missing_compiler_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(UsageError, match=r"^no-such-compiler: there is no such C compiler; install one \(on Debian"):
        compile_handlers("", "on_entry")
    monkeypatch.setenv("CC", "gcc '-O2")
    with pytest.raises(UsageError, match="CC=gcc '-O2: is not a command"):
        compile_handlers("", "on_entry")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        UsageError, match=r"handlers in C need a C compiler, and there is none; install one \(on Debian"
    ):
        compile_handlers("", "on_entry")


def test_the_first_compiler_that_there_is_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clang").write_text("#!/bin/sh\necho this is no compiler >&2\nexit 3\n")
    (tmp_path / "clang").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    with pytest.raises(UsageError, match="<source>: does not compile\nthis is no compiler"):
        compile_handlers("", "on_entry")


# --- shared objects that are there already ---

LIBRARY = "int on_entry(void *call) { return !call; }\nvoid on_exit(void *call) { (void)call; }\nint number = 3;\n"


def test_a_shared_object_is_taken_as_it_is(tmp_path: Path) -> None:
    path = compile_text(LIBRARY, "-O2 -shared -fPIC", name="handlers.so")
    made = load_handlers(str(path), "on_entry", "on_exit")
    assert made.content == path.read_bytes()
    assert Loaded(made, tmp_path).entry(0) == 1
    assert "it has constructors" in made.obstacles, "those that every C library's start files bring along"


def test_an_object_without_start_files_needs_no_loader() -> None:
    path = compile_text(LIBRARY, "-O2 -shared -fPIC -nostdlib", name="handlers.so")
    assert load_handlers(str(path), "on_entry").obstacles == ()


def test_what_an_object_needs_is_known() -> None:
    source = "int puts(const char *); int on_entry(void *call) { return puts(call); }\n"
    path = compile_text(source, "-O2 -shared -fPIC -nostdlib", name="handlers.so")
    assert load_handlers(str(path), "on_entry").obstacles == ("it needs the symbols puts",)
    path = compile_text(source, "-O2 -shared -fPIC -nostdlib -lc", name="handlers.so")
    assert load_handlers(str(path), "on_entry").obstacles == ("it needs libc.so.6", "it needs the symbols puts")
    source = "extern int other; int other; int on_entry(void *call) { return call ? other++ : 0; }\n"
    path = compile_text(source, "-O2 -shared -fPIC -nostdlib", name="handlers.so")
    assert load_handlers(str(path), "on_entry").obstacles == ("it has relocations by name",)


@pytest.mark.parametrize(
    ("source", "flags", "sentence"),
    [
        (LIBRARY, "-shared -fPIC", "there is no function on_entri in it that others can see; did you mean on_entry?"),
        (LIBRARY.replace("int on_entry", "static int on_entri").replace("!call; }", "!call; }\nvoid *p = on_entri;"),
         "-shared -fPIC -nostdlib", "there is no function on_entri in it that others can see; it is static"),
        ("int on_entri = 1;", "-shared -fPIC", "on_entri is not a function"),
        ("static int f(void *c) { return !c; } static void *r(void) { return f; }\n"
         "int on_entri(void *) __attribute__((ifunc(\"r\")));", "-shared -fPIC", "on_entri is an indirect function"),
        ("int main(void) { return 0; }", "", "is a program; handlers are taken from shared objects"),
        ("int on_entri(void) { return 0; }", "-c", "is an object file that has not been linked"),
        ("int on_entri(void) { return 0; }", "-m32 -c", "is built for another architecture (32-bit x86)"),
    ],
)  # fmt: skip
def test_what_is_no_object_with_handlers_is_refused(source: str, flags: str, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_handlers(str(compile_text(source, f"-O0 {flags}", name="handlers.so")), "on_entri")
    assert sentence in str(raised.value)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    for content, sentence in (
        (b"", "is empty"),
        (b"text", "is not an ELF"),
        (b"\x7fELF\2\1\1", "is damaged or cut short"),
    ):
        (tmp_path / "some.so").write_bytes(content)
        with pytest.raises(UsageError, match=sentence):
            load_handlers(str(tmp_path / "some.so"), "on_entry")
    with pytest.raises(UsageError, match="cannot be read: no such file or directory"):
        load_handlers(str(tmp_path / "none.so"), "on_entry")
    with pytest.raises(UsageError, match="cannot be read: is a directory"):
        load_handlers(str(tmp_path), "on_entry")
