"""What cannot be recorded is refused in one sentence that names it, before anything is started or left behind."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowgraph.errors import EXIT_CANNOT_START, EXIT_USAGE
from tests.support.build import BuildError, build
from tests.support.commands import run as run_here
from tests.support.manners import PROGRAMS, Ended, program, recorded, recorder, run

SYS_PTRACE, SYS_MEMFD_CREATE = 101, 319
EPERM = 1
ELF_CLASS, ELF_DATA, ELF_TYPE, ELF_MACHINE = 4, 5, 16, 18

# Root without its capabilities has the rights of an ordinary user over its own files.
AS_USER = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


def refused(command: list[str], *options: str, folder: Path, code: int = EXIT_CANNOT_START) -> str:
    """What `record` says, having left nothing behind."""
    before = sorted(folder.iterdir())
    ended = run([*recorder(*options, trace=folder / "t.sgt"), *command], folder=folder)
    assert (ended.status, ended.output) == (code, ""), ended
    assert sorted(folder.iterdir()) == before
    return ended.sentence


def changed(tmp_path: Path, **fields: tuple[int, bytes]) -> str:
    """A real program with other bytes in its ELF header."""
    data = bytearray(Path(program("manners_state")).read_bytes())
    for at, value in fields.values():
        data[at : at + len(value)] = value
    path = tmp_path / "program"
    path.write_bytes(data)
    path.chmod(0o755)
    return str(path)


def half(value: int) -> bytes:
    return struct.pack("<H", value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"a": (ELF_CLASS, b"\1"), "b": (ELF_MACHINE, half(3))}, "another architecture (32-bit x86); only x86-64"),
        ({"a": (ELF_CLASS, b"\1")}, "32-bit program (x32); only 64-bit x86-64"),
        ({"a": (ELF_MACHINE, half(183))}, "another architecture (ARM64); only x86-64"),
        ({"a": (ELF_DATA, b"\2")}, "big-endian"),
        ({"a": (ELF_TYPE, half(1))}, "object file"),
        ({"a": (ELF_TYPE, half(4))}, "core dump"),
        ({"a": (0, b"\0")}, "neither an ELF program nor a script with a #! line; name its interpreter first (sh "),
    ],
)
def test_programs_of_other_kinds_are_called_by_their_kind(
    fields: dict[str, tuple[int, bytes]], said: str, tmp_path: Path
) -> None:
    path = changed(tmp_path, **fields)
    sentence = refused([path], folder=tmp_path)
    assert sentence.startswith(path) and said in sentence


@pytest.mark.parametrize("size", [0, 3, 4, 40, 100, 3000])
def test_a_program_that_is_cut_off_is_refused(size: int, tmp_path: Path) -> None:
    path = changed(tmp_path)
    os.truncate(path, size)
    sentence = refused([path], folder=tmp_path)
    assert sentence.startswith(path) and ("damaged or cut short" in sentence or "neither an ELF" in sentence)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "no such program"),
        (lambda path: path.mkdir(), "is a folder, not a program"),
        (lambda path: path.write_text(""), "is not executable (chmod +x it, or name its interpreter first)"),
        (lambda path: path.symlink_to("nowhere"), "no such program"),
        (lambda path: executable(path, "#!/no/such\n"), "is a script for /no/such, which cannot be run"),
        (lambda path: executable(path, "echo text\n"), "name its interpreter first (sh "),
    ],
)
def test_what_is_no_program_is_refused(make: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    make(path)
    sentence = refused([str(path)], folder=tmp_path)
    assert str(path) in sentence and said in sentence
    without_path = run_here("functions", path)
    assert str(path) in without_path.error


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_a_command_line_in_one_word_says_so(tmp_path: Path) -> None:
    said = "sh -c true: no such program; without quotes around all of it, sh is the program and the rest its arguments"
    assert refused(["sh -c true"], folder=tmp_path) == said
    assert "quotes" not in refused(["no_such_program -c"], folder=tmp_path)


def test_a_name_that_is_not_in_path_says_so(tmp_path: Path) -> None:
    executable(tmp_path / "here", "#!/bin/sh\n")
    assert "here: no such program in PATH; give a path (./…)" in refused(["here"], folder=tmp_path)


@pytest.mark.parametrize("flag", ["-static", "-static-pie"])
def test_a_static_program_is_refused(flag: str, tmp_path: Path) -> None:
    try:
        path = build(PROGRAMS / "manners_environment.c", "o1", (flag,))
    except BuildError:
        pytest.skip(f"the C library has no files for {flag}")
    assert refused([str(path)], folder=tmp_path).startswith(f"{path}: is statically linked; only dynamically linked")
    executable(tmp_path / "it", f"#!{path}\n")
    said = f"{tmp_path}/it is a script for {path}, which cannot be traced: is statically linked; only"
    assert refused([str(tmp_path / "it")], folder=tmp_path).startswith(said)


def setid_program(bit: int) -> str:
    """An installed program with other rights than ours."""
    for path in sorted(Path("/usr/bin").iterdir()):
        status = path.stat() if path.is_file() else None
        if status and status.st_mode & bit and (status.st_uid, status.st_gid)[bit == 0o2000] != os.geteuid():
            return str(path)
    pytest.skip("no such program is installed")


@pytest.mark.parametrize(("bit", "word"), [(0o4000, "setuid"), (0o2000, "setgid")])
def test_a_program_with_rights_of_its_own_is_refused(bit: int, word: str, tmp_path: Path) -> None:
    path = setid_program(bit) if os.geteuid() != 0 else str(tmp_path / "p")
    if os.geteuid() == 0:
        shutil.copy(program("manners_state"), path)
        os.chown(path, 65534, 65534)
        os.chmod(path, 0o755 | bit)
    ended = run([*AS_USER, *recorder(trace=tmp_path / "t.sgt"), path], folder=tmp_path)
    assert ended.status == EXIT_CANNOT_START
    assert ended.sentence.startswith(f"{path}: is {word}; ") and "as root" in ended.sentence


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_program_that_may_be_run_and_not_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p"
    shutil.copy(program("manners_state"), path)
    os.chown(path, 65534, 65534)
    path.chmod(0o711)
    ended = run([*AS_USER, *recorder(trace=tmp_path / "t.sgt"), str(path)], folder=tmp_path)
    assert ended.status == EXIT_CANNOT_START
    assert ended.sentence.startswith(f"{path}: its file may not be read by this user")


def test_an_ordinary_user_can_record(tmp_path: Path) -> None:
    ended = run([*AS_USER, *recorder(trace=tmp_path / "t.sgt"), "true"], folder=tmp_path)
    assert (ended.status, ended.errors) == (0, "")


def forbidding(number: int, command: list[str]) -> Ended:
    return run([program("manners_forbidden"), str(number), str(EPERM), *command])


def test_where_ptrace_is_forbidden_the_sentence_says_what_forbids_it(tmp_path: Path) -> None:
    ended = forbidding(SYS_PTRACE, [*recorder(trace=tmp_path / "t.sgt"), program("manners_state")])
    assert (ended.status, ended.output) == (EXIT_CANNOT_START, "")
    assert ended.sentence.startswith(program("manners_state") + ": nothing may be traced here: ")
    assert "seccomp" in ended.sentence and "kernel.yama.ptrace_scope" in ended.sentence
    assert not list(tmp_path.iterdir())


def test_where_memory_cannot_be_shared_the_sentence_says_so(tmp_path: Path) -> None:
    ended = forbidding(SYS_MEMFD_CREATE, [*recorder(trace=tmp_path / "t.sgt"), program("manners_state")])
    assert (ended.status, ended.output) == (EXIT_CANNOT_START, "")
    assert "no memory could be shared with it" in ended.sentence and "sandbox" in ended.sentence


def test_a_program_that_confines_itself_is_recorded_up_to_there_and_the_rest_is_said(tmp_path: Path) -> None:
    confined = [program("manners_forbidden"), str(SYS_PTRACE), str(EPERM), program("manners_counted", "o1", "-pthread")]
    command = [argument for argument in recorder(trace=tmp_path / "t.sgt") if argument != "-q"]
    ended = run([*command, *confined, "10", "2", "5"])
    assert ended.status == 5 and ended.lines == run([confined[-1], "10", "2", "5"]).lines
    assert "is confined by a seccomp filter of its own; what it loads and executes is not traced" in ended.errors


def test_when_no_function_matches_the_nearest_names_are_shown(tmp_path: Path) -> None:
    path = program("manners_counted", "o1", "-pthread")
    sentence = refused([path], "-f", "midle", folder=tmp_path, code=EXIT_USAGE)
    assert sentence.startswith(f"{path}: no function matches midle; the nearest names are middle")
    functions = run_here("functions", path, "-f", "midle")
    assert "no function matches midle; the nearest names are middle" in functions.error


def test_a_function_that_nothing_is_like_is_refused_without_guesses(tmp_path: Path) -> None:
    path = program("manners_counted", "o1", "-pthread")
    sentence = refused([path], "-f", "xyzzy_plugh", folder=tmp_path, code=EXIT_USAGE)
    assert sentence == f"{path}: no function matches xyzzy_plugh"


@pytest.mark.parametrize("pattern", ["libnosuch*", "libnosuch.so!main"])
def test_a_module_that_is_not_there_is_said_with_those_that_are(pattern: str, tmp_path: Path) -> None:
    option = "-f" if "!" in pattern else "-m"
    path = program("manners_counted", "o1", "-pthread")
    command = [word for word in recorder(option, pattern, trace=tmp_path / "t.sgt") if word != "-q"]
    ended = run([*command, path, "2", "2", "5"])
    assert ended.status == 5
    modules = pattern.partition("!")[0]
    assert f"no module matched {modules}; there were {os.path.basename(path)}, " in ended.errors
    assert "libc.so.6" in ended.errors and "agent" not in ended.errors


def test_when_nothing_can_be_hooked_the_reason_is_given(tmp_path: Path) -> None:
    path = program("manners_counted", "o1", "-pthread")
    sentence = refused([path], "-f", "_start", folder=tmp_path)
    assert sentence.startswith(f"{path}: the functions that match _start cannot be hooked: it has no caller")
    assert f"shadowgraph functions {path}" in sentence


def test_a_program_whose_library_is_missing_ends_as_it_would(tmp_path: Path) -> None:
    path = tmp_path / "needy"
    path.write_bytes(Path(program("manners_state")).read_bytes().replace(b"libc.so.6\0", b"libx.so.6\0"))
    path.chmod(0o755)
    plain, ended = run([str(path)]), recorded([str(path)])
    assert (ended.status, ended.output) == (plain.status, plain.output) == (127, "")
    assert ended.errors == plain.errors


def test_a_record_without_a_program_and_a_command_that_does_not_exist_are_explained() -> None:
    for arguments, said in (
        (["record"], "name a program to record, or a process with --pid"),
        (["reprot"], "no such command 'reprot'. Did you mean 'report'? See `shadowgraph --help`"),
        (["attach", "7"], "no such command 'attach'. Did you mean 'record --pid'? See `shadowgraph --help`"),
        (["report", "a", "b"], "got unexpected extra argument (b); see `shadowgraph report --help`"),
        (["xyzzy"], "no such command 'xyzzy'; there are record, report, "),
    ):
        ended = run([*recorder()[:3], *arguments])
        assert ended.status == EXIT_USAGE and ended.sentence.startswith(said)
