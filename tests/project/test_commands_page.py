"""docs/commands.md lists each command with the options it has; examples in the documents are commands that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from shadowgraph.cli.main import group

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "commands.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])

CONTEXT = click.Context(group)
COMMANDS = {name: command for name in group.list_commands(CONTEXT) if (command := group.get_command(CONTEXT, name))}

# A row of a table of options: a first cell with code in it, and the rest.
ROW = re.compile(r"^\| (`-.*?) \| (.*) \|$", re.M)
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def section(name: str) -> str:
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found, f"docs/commands.md has no section on {name}"
    return found[1]


def options_of(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def spellings(option: click.Option) -> set[str]:
    return {*option.opts, *option.secondary_opts}


def rows(name: str) -> dict[str, str]:
    """Each spelling of an option that the page has, with the whole row it stands in."""
    return {
        spelling: f"{first} {rest}" for first, rest in ROW.findall(section(name)) for spelling in OPTION.findall(first)
    }


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert re.findall(r"^## (\w+)$", PAGE, re.M) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_exactly_the_options_of_the_command(name: str) -> None:
    real = {spelling for option in options_of(COMMANDS[name]) for spelling in spellings(option)} - {"-h", "--help"}
    assert set(rows(name)) == real


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_names_every_choice_and_default(name: str) -> None:
    documented = rows(name)
    for option in options_of(COMMANDS[name]):
        row = documented.get(option.opts[0], "")
        if isinstance(option.type, click.Choice):
            assert not [choice for choice in option.type.choices if f"`{choice}`" not in row], option.opts
            assert "the default" in row, option.opts
        elif option.show_default and not option.is_flag:
            assert str(option.default) in row, f"{option.opts}: the default is {option.default}"


def find_examples() -> Iterator[tuple[str, str]]:
    """Command lines of ours in the code blocks of the documents."""
    for path in DOCUMENTS:
        for block in re.findall(r"^```\w*\n(.*?)^```|((?:^    .*\n)+)", path.read_text(), re.M | re.S):
            for line in "".join(block).splitlines():
                found = re.match(r"(?:\$ |    )(?:sudo )?shadowgraph ([a-z].*)", line)
                if found and "[" not in found[1]:
                    yield path.name, found[1]


EXAMPLES = list(find_examples())


def test_there_are_examples() -> None:
    names = {name for name, _ in EXAMPLES}
    assert {"README.md", "commands.md"} <= names


@pytest.mark.parametrize(("document", "line"), EXAMPLES)
def test_an_example_is_understood(document: str, line: str) -> None:
    words = shlex.split(re.split(r"\s[|>]\s|…", line)[0], comments=True)
    name, *arguments = words
    assert name in COMMANDS, f"{document}: {line}"
    context = click.Context(COMMANDS[name], ignore_unknown_options=False, allow_interspersed_args=name != "record")
    COMMANDS[name].make_parser(context).parse_args(list(arguments))
