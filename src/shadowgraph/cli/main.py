"""The `shadowgraph` command: finds the command's file when it is needed, and turns our errors into one line."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from shadowgraph.errors import EXIT_CANNOT_START, EXIT_USAGE, ShadowgraphError

__all__ = ["main", "run"]

_COMMANDS = {
    "record": "Run a program and record its function calls.",
    "report": "Which functions took the time.",
    "replay": "The function graph in time order.",
    "graph": "The merged call tree, with times and counts.",
    "functions": "What can be hooked in a program, and why the rest cannot.",
    "count": "How often functions of a running program are called.",
    "hist": "How long calls of a running program take, or what they are given.",
    "probe": "Your own handlers in C on functions of a running program.",
    "top": "A live table of the functions of a running program.",
    "users": "Who uses the functions of a running program.",
    "detach": "Take users off a running program.",
}


# What other tools call what there is here.
_MEANT = {
    "attach": "record --pid",
    "trace": "record",
    "run": "record",
    "start": "record",
    "stat": "count",
    "list": "functions",
    "script": "replay",
    "dump": "replay",
    "tree": "graph",
    "flame": "graph",
    "flamegraph": "graph",
    "latency": "hist",
    "histogram": "hist",
    "live": "top",
    "ps": "users",
    "stop": "detach",
}


class _LazyGroup(click.Group):
    """Commands are imported when they run: `shadowgraph --version` must not wait for numpy."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = importlib.import_module(f"shadowgraph.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`help` and `help COMMAND` are --help, as in many tools."""
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if name not in _COMMANDS and not name.startswith("-"):
            import difflib

            near = [_MEANT[name]] if name in _MEANT else difflib.get_close_matches(name, _COMMANDS, 1)
            meant = f". Did you mean {near[0]!r}?" if near else f"; there are {', '.join(_COMMANDS)}"
            context.fail(f"no such command {name!r}{meant}")
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _tell_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"shadowgraph {version('shadowgraph')}")
    except PackageNotFoundError:
        click.echo("shadowgraph, run from a folder that is not installed")
    context.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_tell_version, help="Show the version."
)
def group() -> None:
    """See every function call of a real program, without recompiling it."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command line."""
    try:
        result: Any = group.main(args=arguments, prog_name="shadowgraph", standalone_mode=False)
        sys.exit(result if isinstance(result, int) else 0)
    except ShadowgraphError as error:
        click.echo(f"shadowgraph: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and later
            error.show()
        else:
            click.echo(f"shadowgraph: {_sentence(error, sys.argv[1:] if arguments is None else arguments)}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except (MemoryError, ImportError, OSError) as error:
        sentence, code = _shortage(error) or _gone(error), EXIT_CANNOT_START
        if sentence is None:
            sentence, code = _unreachable(error), EXIT_USAGE
        if sentence is None:
            raise
        click.echo(f"shadowgraph: {sentence}", err=True)
        sys.exit(code)


def _sentence(error: click.ClickException, arguments: list[str]) -> str:
    """What click has to say, as one sentence like all others, and where to read on."""
    said = error.format_message().rstrip(".").replace("\n", " ")
    said = said[:1].lower() + said[1:]
    context = getattr(error, "ctx", None)
    named = [name for name in arguments[:1] if name in _COMMANDS]
    help_text = f"`{context.command_path if context is not None else ' '.join(['shadowgraph', *named])} --help`"
    return f"{said} See {help_text}" if said.endswith("?") else f"{said}; see {help_text}"


def _shortage(error: BaseException) -> str | None:
    """What the machine, or a limit on this process, has too little of; None for any other error."""
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
        return "too many open files; allow more (ulimit -n)"
    # A library that cannot be mapped is an ImportError with the loader's words.
    no_room = any(words in str(error) for words in ("failed to map", "cannot map", "cannot allocate"))
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM or no_room:
        return "there is not enough memory; allow more (ulimit -v, ulimit -d)"
    return None


def _gone(error: BaseException) -> str | None:
    """A process that has ended while it was looked at; None for any other error."""
    name = str(getattr(error, "filename", None) or "").split("/")
    gone = getattr(error, "errno", None) in (errno.ENOENT, errno.ESRCH)
    if not gone or name[:2] != ["", "proc"] or not name[2].isdigit():
        return None
    return f"process {name[2]} has just ended"


def _unreachable(error: BaseException) -> str | None:
    """A file that was named and that the system does not let us reach; None for any other error."""
    name = getattr(error, "filename", None)
    number = getattr(error, "errno", None)
    if number not in (errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG) or name is None or str(name).startswith("/proc/"):
        return None
    return f"{name}: cannot be reached: {os.strerror(number).lower()}"


def run() -> None:
    """Entry point of a process of our own: main(), and an end without taking apart what is dropped as a whole anyway.

    With numpy in it an interpreter takes as long for that as for a tenth of a short recording.
    """
    try:
        main()
    except SystemExit as end:
        if type(end.code) is not int:
            raise
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None and not stream.closed:
                    stream.flush()
        except OSError:
            raise end from None  # the interpreter has its own way to say so
        os._exit(end.code)


if __name__ == "__main__":
    run()
