"""The command line, run within the test's own process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from shadowgraph.cli.main import group
from shadowgraph.errors import ShadowgraphError


@dataclass
class Outcome:
    """What a command printed, and the sentence it refused with, if it did."""

    output: str
    error: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


def run(*arguments: str | Path) -> Outcome:
    """Run a command as a pipe would see it."""
    result = CliRunner().invoke(group, [str(argument) for argument in arguments])
    if isinstance(result.exception, ShadowgraphError):
        return Outcome(result.stdout, str(result.exception))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return Outcome(result.stdout, "")
