"""`shadowgraph detach`: takes users off a process, whoever has registered them."""

from __future__ import annotations

from typing import Any

import click

from shadowgraph.cli._session import pid_argument

__all__ = ["command"]


@click.command(short_help="Take users off a running program.")
@click.option("--user", metavar="NAME|SLOT", help="This one alone, by its name or slot as `users` shows them.")
@pid_argument
def command(pid: int, user: str | None) -> None:
    """Take all users off the process PID, or one of them, whoever has registered them; and all hooks if nobody is left.

    Commands that lose their user this way end, and print what they have counted.
    """
    from shadowgraph.cli._numpy import load_numpy

    load_numpy()
    from shadowgraph.live.others import detach_users
    from shadowgraph.view.terminal import Output
    from shadowgraph.view.units import count_of

    done = detach_users(pid, user)
    output = Output()
    for row in done.ended:
        output.line(f"{row['name']} (slot {row['slot']}, {_owner(row)}) was taken off process {pid}")
    if done.left:
        output.line(f"{count_of(len(done.left), 'user')} left: {', '.join(row['name'] for row in done.left)}")
    elif done.unhooked:
        output.line(f"nobody uses process {pid} any more; its code is as it was")
    else:
        output.line(f"nobody uses process {pid}")
    for note in done.notes:
        click.echo(f"shadowgraph: {note}", err=True)


def _owner(row: dict[str, Any]) -> str:
    from shadowgraph.view.table import short_command

    state = "which has ended" if row["state"] == "left behind" else short_command(row["command"])
    return f"of process {row['controller']}: {state}"
