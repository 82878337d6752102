"""Starting is quick, judged by what is loaded: no test of ours may depend on how busy a machine is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shadowgraph

# What takes a tenth of a second to import, or is only for development.
HEAVY = {"numpy", "pyarrow", "iced_x86", "pandas", "polars", "duckdb", "capstone", "elftools"}

PROGRAM = """
import json, sys
before = set(sys.modules)
from shadowgraph.cli.main import main
try:
    main({arguments!r})
except SystemExit as end:
    status = end.code
loaded = sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})
print("\\n" + json.dumps([status, loaded]))
"""


def loaded_by(*arguments: str) -> tuple[int, set[str]]:
    """Exit status of the command line, and the top-level packages that it has loaded."""
    program = PROGRAM.format(arguments=list(arguments))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    status, loaded = json.loads(done.stdout.splitlines()[-1])
    return status, set(loaded)


def test_the_command_line_alone_loads_click_and_nothing_heavy() -> None:
    program = "import sys, shadowgraph.cli.main; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "click" in loaded
    assert not loaded & HEAVY


def test_the_version_is_told_without_loading_any_command() -> None:
    status, loaded = loaded_by("--version")
    assert status == 0
    foreign = loaded - set(sys.stdlib_module_names) - {"shadowgraph", "click", "colorama"}
    assert not {name for name in foreign if not name.startswith("_")}


@pytest.mark.parametrize(
    "command", ["", "record", "report", "replay", "graph", "functions", "count", "hist", "top", "users", "detach"]
)
def test_help_is_shown_without_loading_anything_heavy(command: str) -> None:
    status, loaded = loaded_by(*command.split(), "--help")
    assert status == 0
    assert not loaded & HEAVY


def test_the_package_itself_loads_the_reader_only_when_it_is_asked_for() -> None:
    program = (
        "import sys, shadowgraph\n"
        "assert 'pyarrow' not in sys.modules\n"
        "assert callable(shadowgraph.open)\n"
        "assert 'pyarrow' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# What is for reading and planning files that have not been met before, and for processes that run already.
UNNEEDED = {
    *(f"shadowgraph.image.{name}" for name in ("cfi", "discover", "return_address", "special", "unwind", "vetting")),
    *(f"shadowgraph.patch.{name}" for name in ("collisions", "decode", "draft", "jumps", "plan", "relocate")),
    *("shadowgraph.ops.attaching", "shadowgraph.stack", "iced_x86", "lzma", "numpy.ma", "pyarrow"),
}


def test_recording_what_is_known_loads_neither_planner_nor_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = PROGRAM.format(arguments=["record", "-q", "-o", str(tmp_path / "t.sgt"), "/bin/true"])
    program = program.replace('name.partition(".")[0]', "name")
    for expected in (False, True):  # the first recording reads and plans
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        status, loaded = json.loads(done.stdout.splitlines()[-1])
        assert status == 0
        assert (not UNNEEDED & set(loaded)) is expected, UNNEEDED & set(loaded)
        shutil.rmtree(tmp_path / "t.sgt")


INTERRUPTED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit('went on')\n"


@pytest.mark.parametrize(("before", "status", "said"), [("", -2, ""), ("trap '' INT; ", 1, "went on\n")])
def test_an_interrupt_while_it_is_loaded_ends_it_in_silence(
    before: str, status: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "click.py").write_text(INTERRUPTED)
    source = Path(shadowgraph.__file__).parents[1]
    command = f"{before}exec '{sys.executable}' -m shadowgraph.cli.start --version"
    environment = {"PYTHONPATH": f"{tmp_path}:{source}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (status, said, "")
