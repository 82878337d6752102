"""Source lines are shown where debug information knows them, and only of the very file that was recorded."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shadowgraph.image import open_image, read_functions
from shadowgraph.view.source_lines import find_lines

SOURCE = "int first(void)\n{\n    return 1;\n}\n\nint main(void) { return first(); }\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    source, program = tmp_path / "lines.c", tmp_path / "lines"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-g", "-O0", "-o", str(program), str(source)], check=True)
    return program


def rows(program: Path) -> list[tuple[int, str, int]]:
    functions = read_functions(open_image(program))
    return [
        (number, str(program), int(functions.start[functions.find_name(name)[0]]))
        for number, name in ((7, "first"), (9, "main"))
    ]


def test_lines_are_those_of_the_source(program: Path) -> None:
    found = find_lines(rows(program), {str(program): open_image(program).build_id})
    assert {number: line.rpartition("/")[2] for number, line in found.items()} == {7: "lines.c:2", 9: "lines.c:6"}


def test_a_file_that_was_built_anew_tells_nothing(program: Path) -> None:
    assert find_lines(rows(program), {str(program): "0123"}) == {}


def test_a_file_that_is_gone_tells_nothing(program: Path) -> None:
    wanted = rows(program)
    program.unlink()
    assert find_lines(wanted, {}) == {}
