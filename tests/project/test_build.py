"""The native parts are built the same everywhere, and the agent needs nothing of anybody."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.native import ROOT, load_build

native = load_build()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both libraries, built anew with options in the environment that would break them if they were used."""
    output = tmp_path_factory.mktemp("native")
    environment = os.environ | {"CFLAGS": "-no-such-option", "LDFLAGS": "-no-such-option", "CPPFLAGS": "-Dint=char"}
    command = [sys.executable, str(ROOT / "native" / "build.py"), "--output", str(output)]
    subprocess.run(command, check=True, env=environment)
    return output


@pytest.fixture
def checkout(tmp_path: Path) -> ModuleType:
    """The build of a folder with one small library in it."""
    (tmp_path / "native" / "small").mkdir(parents=True)
    (tmp_path / "native" / "include").mkdir()
    (tmp_path / "native" / "small" / "one.c").write_text("int one(void) { return 1; }\n")
    (tmp_path / "native" / "build.py").write_text((ROOT / "native" / "build.py").read_text())
    return load_build(tmp_path)


def small(build: ModuleType) -> object:
    return build.Library("small.so", "small", ("-fPIC",), ("-shared", "-nostdlib"))


# --- the agent (R27: it is nobody's business but ours) ---


def test_the_agent_loads_nothing_and_expects_no_symbol(built: Path) -> None:
    assert native.needs_of(built / "agent.so") == []
    assert native.undefined_symbols_of(built / "agent.so") == []


def test_another_reader_of_elf_files_agrees(built: Path) -> None:
    for name in ("agent.so", "agent-gs.so", "columns.so"):
        with (built / name).open("rb") as file:
            elf = ELFFile(file)
            needed = [tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
            symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())[1:]
        undefined = [symbol.name for symbol in symbols if symbol["st_shndx"] == "SHN_UNDEF"]
        assert native.needs_of(built / name) == needed
        assert native.undefined_symbols_of(built / name) == undefined
    assert "libc.so.6" in needed, "the column loops do use the C library, so the comparison was not one of nothing"


def test_the_agent_offers_only_what_the_controller_looks_up(built: Path) -> None:
    with (built / "agent.so").open("rb") as file:
        symbols = list(ELFFile(file).get_section_by_name(".dynsym").iter_symbols())[1:]
    looked_up = {"sg_settings", "sg_start", "sg_renew", "sg_rings_reset", "sg_guard"}
    looked_up |= {"sg_wait_for_others", "sg_handlers_here"}
    assert {symbol.name for symbol in symbols} == looked_up


def test_the_agent_asks_for_no_executable_stack_and_no_writable_code(built: Path) -> None:
    with (built / "agent.so").open("rb") as file:
        elf = ELFFile(file)
        flags = {segment["p_type"]: segment["p_flags"] for segment in elf.iter_segments()}
        loaded = [segment["p_flags"] for segment in elf.iter_segments("PT_LOAD")]
        tags = {tag.entry.d_tag for tag in elf.get_section_by_name(".dynamic").iter_tags()}
    executable, writable = 1, 2
    assert not flags["PT_GNU_STACK"] & executable
    assert not [flag for flag in loaded if flag & executable and flag & writable]
    assert "DT_TEXTREL" not in tags


def test_the_build_refuses_an_agent_that_needs_something(checkout: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "native" / "small" / "one.c").write_text("int two(void); int one(void) { return two(); }\n")
    checkout.build(small(checkout), tmp_path)
    with pytest.raises(checkout.BuildError, match=r"small.so: is not freestanding: it needs two"):
        checkout._check_freestanding(tmp_path / "small.so")


# --- building ---


def test_only_changed_sources_are_compiled_again(checkout: ModuleType, tmp_path: Path) -> None:
    library, made = small(checkout), tmp_path / "small.so"
    assert checkout.build(library, tmp_path)
    assert not checkout.build(library, tmp_path)
    for changed in ("native/small/one.c", "native/small/new.h", "native/include/shared.h", "native/build.py"):
        path = tmp_path / changed
        path.touch()
        later = made.stat().st_mtime_ns + 1_000_000_000
        os.utime(path, ns=(later, later))
        assert checkout.build(library, tmp_path), f"{changed} has changed"
        os.utime(path, ns=(0, 0))
    assert not checkout.build(library, tmp_path)
    assert checkout.build(library, tmp_path, force=True)


def test_a_library_in_use_is_replaced_and_never_written_to(checkout: ModuleType, tmp_path: Path) -> None:
    made = tmp_path / "small.so"
    checkout.build(small(checkout), tmp_path)
    before = made.stat().st_ino
    with made.open("rb") as held:
        content = held.read()
        checkout.build(small(checkout), tmp_path, force=True)
        held.seek(0)
        assert held.read() == content
    assert made.stat().st_ino != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["native", "small.so"], "nothing else is left behind"


def test_a_missing_compiler_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    command = [sys.executable, str(ROOT / "native" / "build.py"), "--force", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("native/build.py: no-such-compiler: there is no such compiler; install one")
    assert len(done.stderr.splitlines()) == 1


def test_missing_headers_are_told_from_mistakes(checkout: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "native" / "small" / "one.c"
    source.write_text("#include <no_such_header.h>\n")
    with pytest.raises(checkout.BuildError, match=r"headers are missing; install them \(on Debian and Ubuntu: apt"):
        checkout.build(small(checkout), tmp_path)
    source.write_text("int one(void) { return mistake; }\n")
    with pytest.raises(checkout.BuildError, match=r"one\.c.* failed\n(.|\n)*mistake"):
        checkout.build(small(checkout), tmp_path)


# --- packages ---


def hatchling(folder: Path, kind: str, output: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(output)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (made,) = output.iterdir()
    return made


def test_a_wheel_from_a_source_archive_carries_the_native_parts_and_fits_any_python(tmp_path: Path) -> None:
    archive = hatchling(ROOT, "sdist", tmp_path / "sdist")
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    source = tmp_path / archive.name.removesuffix(".tar.gz")
    assert not list(source.rglob("*.so")), "a source archive holds sources"
    wheel = hatchling(source, "wheel", tmp_path / "wheel")
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        about = next(name for name in names if name.endswith(".dist-info/WHEEL"))
        lines = content.read(about).decode().splitlines()
    native_parts = {name for name in names if name.startswith("shadowgraph/_native/")}
    assert native_parts == {f"shadowgraph/_native/{name}" for name in ("agent.so", "agent-gs.so", "columns.so")}
    assert "shadowgraph/cli/main.py" in names
    assert "shadowgraph/include/shadowgraph/ops.h" in names, "what handlers include"
    assert not [name for name in names if name.startswith(("tests", "native", "bench"))]
    assert "Tag: py3-none-linux_x86_64" in lines
    assert "Root-Is-Purelib: false" in lines


# --- what `make` says on a machine that lacks something ---


def find_python(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools" / "find_python.sh")]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


def test_make_finds_a_python_that_is_new_enough(tmp_path: Path) -> None:
    done = find_python(PYTHON=sys.executable)
    assert (done.returncode, done.stdout.strip()) == (0, sys.executable)
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = find_python(PYTHON=str(old))
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith(f"make: {old}: Python 3.11 or later is needed")


def test_make_says_all_that_is_missing_at_once(tmp_path: Path) -> None:
    without_venv = tmp_path / "python"
    without_venv.write_text(f'#!/bin/sh\ncase "$2" in *venv*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    without_venv.chmod(0o755)
    done = find_python(PYTHON=str(without_venv), CC="no-such-compiler")
    assert done.returncode == 1
    assert [line.split(" (")[0] for line in done.stderr.splitlines()] == [
        f"make: {without_venv} has no venv module; install it",
        "make: no-such-compiler: there is no such compiler; install one",
    ]
