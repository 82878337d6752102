"""`shadowgraph users`: who is registered in a process."""

from __future__ import annotations

import click

from shadowgraph.cli._session import pid_argument

__all__ = ["command"]


@click.command(short_help="Who uses the functions of a running program.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pid_argument
def command(pid: int, as_json: bool) -> None:
    """Show who is registered in the process PID, with filter, state and what was lost. It is read, not stopped."""
    from shadowgraph.cli._numpy import load_numpy

    load_numpy()
    from shadowgraph.live.others import read_users
    from shadowgraph.view.live import write_json, write_users
    from shadowgraph.view.terminal import Output

    users = read_users(pid)
    output = Output()
    if as_json:
        write_json(output, {"pid": pid, "hooked": users.hooked, "users": users.rows})
        return
    if users.rows:
        write_users(output, users.rows, f"shadowgraph detach {pid} --user {users.rows[0]['slot']} takes the first off")
    if users.rows and any(row["state"] != "left behind" for row in users.rows):
        return
    if users.hooked:
        output.line(
            f"process {pid} has hooks of a controller that has ended; `shadowgraph detach {pid}` takes them out"
        )
    else:
        output.line(f"nobody uses process {pid}")
