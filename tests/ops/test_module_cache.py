"""What is known of files from earlier recordings: what would be found out now, and from trusted files alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from shadowgraph.image import open_image, read_functions
from shadowgraph.ops.column_file import pack, unpack
from shadowgraph.ops.known_modules import KnownModule
from shadowgraph.ops.module_cache import ModuleCache, identify
from shadowgraph.patch import ModulePlan, plan_module

ARRAYS = ("start", "size", "source", "is_ifunc", "has_unwind", "refused", "return_address_reads")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache of this test is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of the user"))
    monkeypatch.delenv("SHADOWGRAPH_NO_CACHE", raising=False)
    return tmp_path / "of the user" / "shadowgraph"


def known(path: Path | str) -> KnownModule:
    """A module with all that is kept of it; what was found out is written."""
    module = KnownModule(str(path), str(path), ModuleCache())
    module.plan(np.arange(min(5, len(module.functions))))
    module.cache.write()
    return module


def c_library() -> str:
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if "/libc.so" in line or "/libc-2" in line or "ld-musl" in line)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with debug information, cold parts and aliases, and three functions."""
    path = tmp_path_factory.mktemp("program")
    source = path / "program.c"
    source.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        '__attribute__((noinline)) int first(int n) { if (n > 99) { puts("cold"); abort(); } return n + 1; }\n'
        'int other(int n) __attribute__((alias("first")));\n'
        "__attribute__((noinline)) int second(int n) { return first(n) * 3; }\n"
        "int main(int argc, char **argv) { (void)argv; return second(argc) == 6 ? 0 : 1; }\n"
    )
    subprocess.run(["gcc", "-g", "-O2", "-Wl,--build-id", "-o", path / "program", source], check=True)
    return path / "program"


def stripped(program: Path, folder: Path) -> Path:
    subprocess.run(["strip", "-o", folder / "stripped", program], check=True)
    return folder / "stripped"


def with_debug_link(program: Path, folder: Path) -> Path:
    """Stripped, its symbols in a file beside it."""
    subprocess.run(["objcopy", "--only-keep-debug", program, folder / "linked.debug"], check=True)
    stripped(program, folder).rename(folder / "linked")
    subprocess.run(["objcopy", "--add-gnu-debuglink=linked.debug", "linked"], cwd=folder, check=True)
    return folder / "linked"


def module_path(name: str, program: Path, folder: Path) -> Path | str:
    made = {"stripped": stripped, "with a debug link": with_debug_link}
    if name in made:
        return made[name](program, folder)
    found = {"libc": c_library(), "python3": os.path.realpath(sys.executable), "bash": shutil.which("bash")}[name]
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.parametrize("name", ["libc", "python3", "bash", "stripped", "with a debug link"])
def test_what_comes_from_the_cache_is_what_would_be_found_now(
    name: str, program: Path, tmp_path: Path, folder: Path
) -> None:
    path = module_path(name, program, tmp_path)
    fresh = known(path)
    assert len(list(folder.iterdir())) == 2
    cached = known(path)
    assert "tables" in vars(cached.functions.aliases) and cached.functions.aliases.tables._tables is None, "not cached"
    for column in ARRAYS:
        ours, theirs = getattr(fresh.functions, column), getattr(cached.functions, column)
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs), column
    assert np.array_equal(fresh.refusals, cached.refusals) and np.array_equal(fresh.special, cached.special)
    assert list(fresh.functions.parts) == list(cached.functions.parts)
    assert fresh.functions.left_out() == cached.functions.left_out()
    assert fresh.functions.preferred_names == cached.functions.preferred_names
    rows = range(len(fresh.functions))
    assert [fresh.functions.names(row) for row in rows] == [cached.functions.names(row) for row in rows]
    for text in fresh.functions.preferred_names[:50]:
        assert fresh.functions.find_name(text) == cached.functions.find_name(text)
    assert same_plan(fresh.plan(np.arange(len(rows))), cached.plan(np.arange(len(rows))))


def same_plan(ours: ModulePlan, theirs: ModulePlan) -> bool:
    for field in fields(ModulePlan):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype and np.array_equal(one, other), field.name
        else:
            assert (one if isinstance(one, str) else list(one)) == (other if isinstance(other, str) else list(other))
    return True


def is_cached(path: Path | str) -> bool:
    image = open_image(str(path))
    identity = identify(image, str(path), str(path))
    return identity is not None and ModuleCache().find(identity, "functions") is not None


def test_a_debug_file_that_appears_or_goes_makes_the_cache_ask_again(
    program: Path, tmp_path: Path, folder: Path
) -> None:
    path = with_debug_link(program, tmp_path)
    debug = tmp_path / "linked.debug"
    debug.rename(tmp_path / "aside")
    assert not any("first" in known(path).functions.names(row) for row in range(len(known(path).functions)))
    (tmp_path / "aside").rename(debug)
    assert any("first" in known(path).functions.names(row) for row in range(len(known(path).functions)))


def test_a_file_that_was_changed_is_another_one(program: Path, tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "copy"
    shutil.copy2(program, path)
    known(path)
    assert is_cached(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert not is_cached(path)


def test_a_file_without_a_build_id_is_known_by_its_place(program: Path, tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "nameless"
    subprocess.run(["objcopy", "--remove-section=.note.gnu.build-id", program, path], check=True)
    assert identify(open_image(str(path)), str(path), str(path)) is None, "it has just been made"
    os.utime(path, (1e9, 1e9))
    known(path)
    assert is_cached(path)
    shutil.copy2(path, tmp_path / "elsewhere")
    assert not is_cached(tmp_path / "elsewhere")


def damages(block: bytes) -> dict[str, bytes]:
    middle = len(block) // 2
    return {
        "empty": b"",
        "cut": block[:middle],
        "one byte short": block[:-1],
        "longer": block + b"\0",
        "a bit changed": block[:middle] + bytes([block[middle] ^ 4]) + block[middle + 1 :],
        "another mark": b"X" + block[1:],
        "a header that is too long": block[:8] + b"\xff\xff\xff\x7f" + block[12:],
        "zeros": bytes(len(block)),
    }


@pytest.mark.parametrize("damage", damages(bytes(100)))
def test_a_damaged_entry_is_made_anew(damage: str, program: Path, folder: Path) -> None:
    names = known(program).functions.preferred_names
    for file in folder.iterdir():
        file.write_bytes(damages(file.read_bytes())[damage])
    assert not is_cached(program)
    assert known(program).functions.preferred_names == names
    assert is_cached(program)


def test_an_entry_of_another_key_is_not_taken() -> None:
    block = pack("one", {"a": np.arange(3)})
    whole = unpack("one", block)
    assert whole is not None and np.array_equal(whole["a"], np.arange(3))
    assert unpack("other", block) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_what_others_may_write_is_not_believed(mode: int, program: Path, folder: Path) -> None:
    known(program)
    for file in folder.iterdir():
        file.chmod(mode)
    assert not is_cached(program)


def test_a_folder_that_others_may_write_to_is_not_used(program: Path, folder: Path) -> None:
    known(program)
    folder.chmod(0o770)
    assert not ModuleCache().usable
    folder.chmod(0o700)
    assert is_cached(program)


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files away")
def test_the_superuser_does_not_believe_a_user(program: Path, folder: Path) -> None:
    known(program)
    file = next(file for file in folder.iterdir() if "functions" in file.name)
    os.chown(file, 1000, 1000)
    assert not is_cached(program)
    os.chown(file, 0, 0)
    os.chown(folder, 1000, 1000)
    assert not ModuleCache().usable


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files away")
def test_nothing_is_made_in_another_users_folder(folder: Path) -> None:
    folder.parent.mkdir()
    os.chown(folder.parent, 1000, 1000)
    assert not ModuleCache().usable
    assert not folder.exists()


def test_links_are_not_followed(program: Path, tmp_path: Path, folder: Path) -> None:
    known(program)
    for file in list(folder.iterdir()):
        file.rename(tmp_path / file.name)
        file.symlink_to(tmp_path / file.name)
    assert not is_cached(program)
    shutil.rmtree(folder)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert not ModuleCache().usable


def test_files_and_folder_are_the_users_alone(program: Path, folder: Path) -> None:
    known(program)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("value", ["/dev/null", "relative"])
def test_a_home_that_is_none_means_no_cache(value: str, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", "/dev/null")
    assert not ModuleCache().usable
    assert known(program).functions.name(0)


def test_an_environment_variable_turns_it_off(program: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADOWGRAPH_NO_CACHE", "1")
    known(program)
    assert not folder.exists()


def test_the_least_recently_used_entries_go(program: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known(program)
    for number in range(8):
        old = folder / f"{number}.plan.columns"
        old.write_bytes(bytes(1 << 16))
        os.utime(old, (1e9 + number, 1e9 + number))
    left_over = folder / "x.plan.columns.7.part"
    left_over.write_bytes(b"")
    os.utime(left_over, (1e9, 1e9))
    monkeypatch.setattr("shadowgraph.ops.module_cache._LIMIT", 6 << 16)
    cache = ModuleCache()
    identity = identify(open_image(str(program)), str(program), str(program))
    assert identity is not None
    cache.keep(identity, "other", {"a": np.arange(3)})
    cache.write()
    left = sorted(file.name for file in folder.iterdir())
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 6 << 16
    assert [name[0] for name in left if name[1:] == ".plan.columns"] == ["4", "5", "6", "7"]
    assert is_cached(program) and not left_over.exists()


def test_functions_are_planned_whole_where_the_plan_is_kept(program: Path, folder: Path) -> None:
    """So that a plan does not depend on who asked first."""
    module = known(program)
    rows = np.arange(len(module.functions))
    assert same_plan(module.plan(rows[:1]), plan_module(module.image, module.functions))
    assert len(read_functions(module.image)) == len(rows)
