"""`shadowgraph functions`: every function, hookable or with its reason, as text and as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shadowgraph.image import open_image, read_functions
from tests.support.hook_bench import HERE, build

FIXED = ("-static", "-no-pie", "-Wl,-Ttext-segment=0x10000000", "-Wl,-e,0")


@pytest.fixture(scope="module")
def program() -> Path:
    return build(HERE / "shapes.S", "shapes", *FIXED)


def run(*arguments: str | Path, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    source = Path(__file__).resolve().parents[2] / "src"
    call = "from shadowgraph.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", call, "functions", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(source), **environment},
    )


def test_json_lists_every_function_with_its_reason(program: Path) -> None:
    finished = run(program, "--json")
    assert finished.returncode == 0, finished.stderr
    answer = json.loads(finished.stdout)
    functions = read_functions(open_image(program))
    assert answer["total"] == len(answer["functions"]) == len(functions)
    assert answer["hookable"] == sum(entry["hookable"] for entry in answer["functions"])
    by_name = {entry["function"]: entry for entry in answer["functions"]}
    row = functions.find_name("rip_lea")[0]
    assert by_name["rip_lea"] == {
        "function": "rip_lea",
        "module": program.name,
        "address": int(functions.start[row]),
        "size": 8,
        "hookable": True,
        "reason": None,
    }
    assert not by_name["packed_1"]["hookable"]
    assert "too short" in by_name["packed_1"]["reason"]


def test_text_ends_with_the_counts(program: Path) -> None:
    lines = run(program).stdout.splitlines()
    assert lines[0].split() == ["ADDRESS", "SIZE", "FUNCTION"]
    assert any(line.split()[1:] == ["8", "rip_lea"] for line in lines)
    assert any("packed_1  — not hookable: it is too short" in line for line in lines)
    summary = next(line for line in lines if line.startswith(f"{program.name}: "))
    total = json.loads(run(program, "--json").stdout)
    assert f"{total['total']} functions, {total['hookable']} can be hooked" in summary
    assert "\033" not in "".join(lines)


def test_refused_lists_only_those(program: Path) -> None:
    answer = json.loads(run(program, "--json", "--refused").stdout)
    assert answer["functions"]
    assert not any(entry["hookable"] for entry in answer["functions"])
    assert len(answer["functions"]) == answer["total"] - answer["hookable"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["rip_lea"], {"rip_lea"}),
        (["packed_[12]"], {"packed_1", "packed_2"}),
        (["re:^loop_.*first$"], {"loop_head_first", "loop_instruction_first", "loop_equal_first"}),
        (["rip_lea", "rip_load"], {"rip_lea", "rip_load"}),
    ],
)
def test_patterns_choose(program: Path, patterns: list[str], expected: set[str]) -> None:
    options = [word for pattern in patterns for word in ("-f", pattern)]
    answer = json.loads(run(program, "--json", *options).stdout)
    assert {entry["function"] for entry in answer["functions"]} == expected
    assert answer["total"] == len(expected)


def test_no_match_names_the_nearest(program: Path) -> None:
    finished = run(program, "-f", "rip_laod")
    assert finished.returncode == 2
    assert "no function matches rip_laod" in finished.stderr
    assert "rip_load" in finished.stderr


def test_names_are_demangled_unless_raw() -> None:
    name = "_ZN5space4callEi"
    body = f"{name}: mov %rdi, %rax\n nop\n nop\n ret\n"
    path = build(f".globl {name}\n .type {name}, @function\n{body}.size {name}, . - {name}", "mangled")
    assert "space::call(int)" in run(path).stdout
    assert "_ZN5space4callEi" in run(path, "--raw-names").stdout
    assert json.loads(run(path, "--json", "-f", "space::*").stdout)["total"] == 1
    assert json.loads(run(path, "--json", "-f", "_ZN5space*").stdout)["total"] == 1


def test_patterns_mean_what_they_mean_to_record() -> None:
    names = {"_ZN5space4callEi": "space::call", "_ZN5space5twiceIiEEvv": "space::twice<int>"}
    body = "".join(
        f".globl {name}\n.type {name}, @function\n{name}: mov %rdi, %rax\n nop\n nop\n ret\n.size {name}, . - {name}\n"
        for name in names
    )
    path = build(body, "named")
    for mangled, name in names.items():
        for text in (mangled, name, name.replace("space", "s*"), f"{os.path.basename(path)}!{name}", f"*!{name}"):
            assert json.loads(run(path, "--json", "-f", text).stdout)["total"] == 1
    assert json.loads(run(path, "--json", "-f", "space::twice*").stdout)["total"] == 1
    elsewhere = run(path, "-f", "libc.so.6!malloc")
    assert elsewhere.returncode == 2
    assert "functions of libc.so.6 are not in this file; name the library's file" in elsewhere.stderr


def test_a_name_is_looked_up_in_path_and_then_here(program: Path, tmp_path: Path) -> None:
    shutil.copy(program, tmp_path / "shapes-here")
    assert run("shapes-here", folder=tmp_path).returncode == 0
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    shutil.copy(program, elsewhere / "shapes-there")
    (elsewhere / "shapes-there").chmod(0o755)
    path = f"{elsewhere}:{os.environ['PATH']}"
    assert "shapes-there: " in run("shapes-there", folder=tmp_path, PATH=path).stdout


@pytest.mark.parametrize(
    "first_line",
    ["#!{}", "#! {} -x", "#!/usr/bin/env shapes-interpreter", "#!/usr/bin/env -S A=1 shapes-interpreter x"],
)
def test_a_script_stands_for_its_interpreter(program: Path, tmp_path: Path, first_line: str) -> None:
    interpreter = tmp_path / "shapes-interpreter"
    shutil.copy(program, interpreter)
    interpreter.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(first_line.format(interpreter) + "\nhello\n")
    finished = run(script, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert "shapes-interpreter: " in finished.stdout, finished.stderr
    assert f"{script} is a script" in finished.stderr


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    lone = tmp_path / "lone"
    lone.write_text("#!/no/such/interpreter\n")
    text = tmp_path / "text"
    text.write_text("no program\n")
    circle = tmp_path / "circle"
    circle.write_text(f"#!{circle}\n")
    for argument in ("no-such-program", str(tmp_path / "missing"), str(tmp_path), str(lone), str(text), str(circle)):
        finished = run(argument)
        assert finished.returncode == 2, argument
        assert finished.stdout == ""
        assert finished.stderr.startswith("shadowgraph: ")
        assert len(finished.stderr.splitlines()) == 1


def test_of_a_number_it_is_said_which_program_that_process_runs(tmp_path: Path) -> None:
    finished = run(str(os.getpid()), folder=tmp_path)
    assert finished.stderr.endswith(f"; process {os.getpid()} runs {os.path.realpath(sys.executable)}\n")
    assert "process" not in run("99999999", folder=tmp_path).stderr


def test_a_reader_that_leaves_early_is_no_error(program: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    command = f"{sys.executable} -c 'from shadowgraph.cli.main import main; main()' functions {program} | head -1"
    finished = subprocess.run(
        command, shell=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(source)}
    )
    assert finished.stderr == ""
    assert finished.stdout.split() == ["ADDRESS", "SIZE", "FUNCTION"]
