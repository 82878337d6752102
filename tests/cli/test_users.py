"""`shadowgraph users`: what it shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from shadowgraph import live
from tests.attach.conftest import built
from tests.support.attached import Running
from tests.support.live import SHADOWGRAPH, started, until, wait_for_users
from tests.support.manners import run, usual_environment
from tests.support.terminal import OnTerminal


def test_users_of_several_controllers_in_the_order_of_their_registration() -> None:
    with Running([built("attach_busy"), "1"]) as running, live.attach(running.pid) as target:
        target.register(live.Counter(["leaf", "middle"], name="mine"))
        paused = target.register(live.Histogram(["tail"], name="at rest"))
        paused.pause()
        other = started("top", str(running.pid), "-f", "attach_busy!loop")
        wait_for_users(running.pid, 3)
        ended = run([*SHADOWGRAPH, "users", str(running.pid)])
        assert (ended.status, ended.errors) == (0, "")
        title, *rows = [line.split() for line in ended.lines]
        assert title[:4] == ["Slot", "Name", "Kind", "State"]
        assert rows[0][:5] == ["1", "mine", "counter", "on", "2"]
        assert rows[1][:6] == ["2", "at", "rest", "histogram", "paused", "1"]
        assert rows[2][:5] == ["3", "top", "totals", "on", "1"]
        assert rows[0][9:12] == [str(os.getpid()), "leaf", "middle"]
        assert f"{other.pid}  attach_busy!loop (" in ended.lines[3] and "shadowgraph.cli.main top" in ended.lines[3]
        listed = json.loads(run([*SHADOWGRAPH, "users", "--json", str(running.pid)]).output)
        assert listed["pid"] == running.pid and listed["hooked"]
        assert [user["controller"] for user in listed["users"]] == [os.getpid(), os.getpid(), other.pid]
        other.kill()
        other.communicate()
        until(lambda: "left behind" in run([*SHADOWGRAPH, "users", str(running.pid)]).output or len(target.users) == 2)
        assert [user["name"] for user in target.users if user["state"] != "left behind"] == ["mine", "at rest"]


def test_a_long_command_line_of_a_controller_is_cut() -> None:
    with Running([built("attach_busy"), "1"]) as running:
        code = "import sys, time; from shadowgraph import live; target = live.attach(int(sys.argv[1]))\n"
        code += "target.register(live.Counter(['leaf'])); print('on', flush=True); time.sleep(1000)" + "\n# words" * 100
        controller = [sys.executable, "-c", code, str(running.pid)]
        with subprocess.Popen(controller, env=usual_environment(), stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None and process.stdout.readline() == "on\n"
                row = run([*SHADOWGRAPH, "users", str(running.pid)]).lines[1]
                assert "import sys" in row and "…" in row and row.endswith(f"# words' {running.pid})")
                assert len(row) < 250
                (user,) = json.loads(run([*SHADOWGRAPH, "users", "--json", str(running.pid)]).output)["users"]
                assert user["command"].count("# words") == 100
                ended = run([*SHADOWGRAPH, "detach", str(running.pid)])
                assert len(ended.lines[0]) < 250
            finally:
                process.kill()


def test_a_narrow_terminal_is_told_what_it_has_no_room_for() -> None:
    with Running([built("attach_busy"), "1"]) as running, live.attach(running.pid) as target:
        target.register(live.Counter(["leaf"]))
        command = " ".join([*SHADOWGRAPH, "users", str(running.pid)])
        with OnTerminal(["sh", "-c", f"stty cols 60; {command}"]) as terminal:
            assert terminal.status() == 0
        lines = terminal.shown.replace("\033[1m", "").replace("\033[0m", "").splitlines()
        assert lines[-1].startswith("(this terminal has no room for: ")
        assert all(len(line) <= 90 for line in lines[:-1])


def test_what_to_type_to_take_one_off_is_said_and_a_kind_is_no_name() -> None:
    with Running([built("attach_busy"), "1"]) as running, live.attach(running.pid) as target:
        target.register(live.Counter(["leaf"], name="mine"))
        ended = run([*SHADOWGRAPH, "users", str(running.pid)])
        assert ended.lines[-1] == f"shadowgraph detach {running.pid} --user 1 takes the first off"
        ended = run([*SHADOWGRAPH, "detach", str(running.pid), "--user", "counter"])
        said = (
            f"process {running.pid} has no user counter, which is a kind; name or slot are wanted; it has mine (slot 1)"
        )
        assert (ended.status, ended.sentence) == (2, said)
        assert run([*SHADOWGRAPH, "detach", str(running.pid), "--user", "1"]).status == 0
