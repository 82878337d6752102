"""`shadowgraph probe`: handlers in C on a running program, their events, endings, and what is refused."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shadowgraph.ops.handler_source import INCLUDE
from tests.attach.conftest import built
from tests.support.attached import Running, Seen
from tests.support.live import SHADOWGRAPH, send, started, wait_for_users
from tests.support.manners import Ended, program, run, usual_environment

BOTH = r"""
struct record { int64_t given; int64_t got; uint32_t same_thread; char name[8]; };

int on_entry(struct sg_call *call)
{
    *(uint64_t *)call->data = sg_arg(call, 0);
    return 1;
}

void on_exit(struct sg_call *call)
{
    struct record record = {*(int64_t *)call->data, (int64_t)call->result, call->thread, "probe"};
    sg_emit(call, &record, sizeof record);
}
"""
FIELDS = ["--event", "given:i8,got:i8,same_thread:u4,name:S8", "--data-size", "8"]
SILENT = "int on_entry(struct sg_call *call) { sg_emit(call, 0, 0); return 0; }"
NUMBERS = "1\n-5\n12\n"


def probed(*words: str, stdin: str = "", environment: dict[str, str] | None = None) -> Ended:
    return run([*SHADOWGRAPH, "probe", *words], stdin=stdin, environment=environment)


def objects(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "both.c"
    path.write_text(BOTH)
    return str(path)


def test_events_of_a_command_are_lines_with_time_thread_function_and_fields(source: str) -> None:
    path = program("live_values", "o2")
    ended = probed("-f", "gives_back", "--source", source, *FIELDS, "--", path, stdin=NUMBERS)
    assert ended.status == 0
    assert ended.lines[:3] == ["ready", "gives_back 3", "OK"]
    found = [
        re.fullmatch(
            r" +(\d+\.\d{6}) +(\d+)  gives_back  given=(-?\d+)  got=(-?\d+)  same_thread=(\d+)  name='probe'", line
        )
        for line in ended.lines[3:]
    ]
    assert all(found), ended.lines
    rows = [match.groups() for match in found if match]
    assert [(given, got) for _, _, given, got, _ in rows] == [("1", "1"), ("-5", "-5"), ("12", "12")]
    assert [thread for _, thread, *_ in rows] == [same for *_, same in rows]
    assert re.fullmatch(r"shadowgraph: 3 events in \d+\.\d s\n", ended.errors)


def test_events_of_another_size_than_was_described_are_told(source: str) -> None:
    words = ["-f", "gives_back", "--source", source, "--data-size", "8"]
    path = program("live_values", "o2")
    for fields, is_told in (
        ("given:i8", True),
        ("given:i8,got:i8,four:i8,more:i8,most:i8", True),
        ("a:i8,b:i8,c:i8,d:i4", False),
    ):
        ended = probed(*words, "--event", fields, "--", path, stdin=NUMBERS)
        assert ("3 events had not the" in ended.errors and "(the last one had 32)" in ended.errors) == is_told
        assert ended.status == 0


def test_json_has_an_object_for_each_event_and_one_that_says_how_it_went(source: str) -> None:
    path = program("live_values", "o2")
    words = ["-f", "gives_back", "--source", source, *FIELDS, "--json", "--when", "arg(0) > 0"]
    ended = probed(*words, "--", path, stdin=NUMBERS)
    *events, last = objects(ended.output)
    assert [event["event"]["given"] for event in events] == [1, 12]
    assert {(event["function"], event["module"]) for event in events} == {("gives_back", "live_values")}
    assert 0 < events[0]["time"] < events[1]["time"] < last["seconds"]
    assert (last["events"], last["filtered"], last["missed"], last["dropped"]) == (2, 1, 0, 0)
    assert (last["end"], last["fault"], last["problems"]) == ("exit", None, [])


def test_handlers_are_taken_from_a_shared_object_and_by_other_names(tmp_path: Path) -> None:
    path, library = tmp_path / "h.c", tmp_path / "h.so"
    path.write_text("#include <shadowgraph/ops.h>\n" + BOTH.replace("on_exit", "leave").replace("on_entry", "enter"))
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", f"-I{INCLUDE}", str(path), "-o", str(library)], check=True)
    named = ["--entry", "enter", "--exit", "leave"]
    words = ["-f", "gives_back", "--object", str(library), *named, *FIELDS, "--json"]
    ended = probed(*words, "--", program("live_values", "o2"), stdin=NUMBERS)
    assert [event["event"]["got"] for event in objects(ended.output)[:-1]] == [1, -5, 12], ended.errors


def test_an_event_without_fields_says_when_where_and_who() -> None:
    ended = probed("-f", "gives_back", "--code", SILENT, "--json", "--", program("live_values", "o2"), stdin=NUMBERS)
    assert [event["event"] for event in objects(ended.output)[:-1]] == [{}, {}, {}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_a_process_is_probed_while_it_runs_and_left_as_it_was(number: int, source: str) -> None:
    path = program("live_values")
    with Running([path]) as running:
        before = Seen.of(running.pid, path)
        command = started("probe", str(running.pid), "-f", "gives_back", "--source", source, *FIELDS, "--json")
        wait_for_users(running.pid, 1)
        send(running, [7])
        assert command.stdout is not None
        assert json.loads(command.stdout.readline())["event"]["given"] == 7, "while it goes on"
        command.send_signal(number)
        output, errors = command.communicate(timeout=60)
        assert (command.returncode, objects(output)[-1]["end"], errors) == (0, "signal", "")
        after = Seen.of(running.pid, path)
        assert (after.code, after.files, after.tracer) == (before.code, before.files, "0")
        assert running.end("") == ["gives_back 1", "OK"]


def test_it_ends_in_time_however_fast_events_come_and_counts_what_found_no_room() -> None:
    with Running([built("attach_busy"), "2"]) as running:
        ended = probed(str(running.pid), "-f", "leaf", "--code", SILENT, "--for", "300ms", "--json")
        *events, last = objects(ended.output)
        assert (ended.status, last["end"], last["events"]) == (0, "time", len(events))
        assert len(events) > 1000
        lost = [problem for problem in last["problems"] if "came too fast" in problem]
        assert (last["dropped"] > 0) == bool(lost)
        assert running.end() == ["wrong 0 worked 1"]


def test_a_handler_that_faults_is_switched_off_with_the_reason_and_the_program_goes_on() -> None:
    code = SILENT.replace("return 0", "return *(volatile int *)sg_arg(call, 0)")
    path = program("live_values", "o2")
    ended = probed("-f", "gives_back", "--code", code, "--json", "--", path, stdin="1\n2\n3\n")
    *events, last = objects(ended.output)
    assert (ended.status, ended.lines[1:3]) == (0, ["gives_back 3", "OK"])
    assert (len(events), last["fault"]) == (1, "signal 11 at address 0x1")
    assert ended.errors == "shadowgraph: the handlers were switched off because of a fault: signal 11 at address 0x1\n"


CODE = ["-f", "gives_back", "--code"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--code", SILENT], "say which functions to probe: -f PATTERN"),
        (["-f", "x"], "say what the handlers are: --source FILE.c, --code 'C text' or --object FILE.so"),
        ([*CODE, SILENT, "--source", "x.c"], "say what the handlers are: --source FILE.c, --code 'C text' or --object"),
        (["-f", "x", "--source", "not_there.c"], "not_there.c: cannot be read: no such file or directory"),
        (["-f", "x", "--object", "not_there.so"], "not_there.so: cannot be read: no such file or directory"),
        ([*CODE, "int f;"], "there is neither a function on_entry nor on_exit; name the handlers with --entry and"),
        ([*CODE, SILENT, "--data-size", "1025"], "data_size: a user keeps at most 1,024 bytes of a call, not 1,025"),
        ([*CODE, SILENT, "--event", "fd:i3"], "--event: 'fd:i3' is no field; write name:type, with a type of i1"),
        ([*CODE, SILENT, "--event", "fd"], "--event: 'fd' is no field; write name:type"),
        ([*CODE, SILENT, "--event", "a:i4,a:i8"], "--event: there is a field a already"),
        ([*CODE, SILENT, "--event", "time:i8"], "--event: there is a field time already"),
        ([*CODE, SILENT, "--event", "a:S9999"], "events: a record may have"),
        (["-f", "gvies_back", "--code", SILENT], "no function matches gvies_back; the nearest names are gives_back"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence_and_the_program_does_not_begin(words: list[str], sentence: str) -> None:
    ended = probed(*words, "--", program("live_values", "o2"), stdin=NUMBERS)
    assert ended.sentence.removeprefix(f"{program('live_values', 'o2')}: ").startswith(sentence)
    assert (ended.output, ended.status) == ("", 2)


def test_the_compilers_own_message_is_shown_with_the_line_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "wrong.c"
    path.write_text("\nint on_entry(struct sg_call *call)\n{\n    return call->nothing;\n}\n")
    ended = probed("-f", "gives_back", "--source", str(path), "--", program("live_values", "o2"))
    assert (ended.output, ended.status) == ("", 2)
    assert ended.errors.startswith("shadowgraph: wrong.c: does not compile\n")
    assert re.search(r"^wrong\.c:4:16: error: .*nothing", ended.errors, re.M), ended.errors


def test_without_a_compiler_it_says_how_to_get_one() -> None:
    without = usual_environment() | {"CC": "no-such-compiler"}
    ended = probed(*CODE, SILENT, "--", program("live_values", "o2"), environment=without)
    assert ended.sentence.startswith("no-such-compiler: there is no such C compiler; install one")
    assert (ended.output, ended.status) == ("", 2)


MEMORY = "int on_entry(struct sg_call *c) { *(uint64_t *)c->%s = 1; return 1; }"


@pytest.mark.parametrize(
    ("field", "hint", "option"),
    [
        ("data", "call->data, which is 0 without %s", ["--data-size", "8"]),
        ("instance", "call->instance, which is 0 without %s and %s", ["--instances", "8", "--instance-size", "8"]),
    ],
)
def test_handlers_that_use_memory_that_they_did_not_ask_for_are_told(field: str, hint: str, option: list[str]) -> None:
    words = ["-f", "gives_back", "--code", MEMORY % field]
    ended = probed(*words, "--", program("live_values", "o2"), stdin=NUMBERS)
    first, fault = ended.errors.splitlines()[:2]
    assert first == f"shadowgraph: the handlers use {hint % tuple(option[::2])}"
    in_python = tuple(word.removeprefix("--").replace("-", "_") for word in option[::2])
    assert fault.endswith(f"signal 11 at address 0x0; the handlers use {hint % in_python}")
    assert "the handlers use" not in probed(*words, *option, "--", program("live_values", "o2"), stdin=NUMBERS).errors
    others = "struct o { int data, instance; }; int on_entry(struct sg_call *c) { return ((struct o *)c)->data; }"
    assert (
        "the handlers use" not in probed(*words[:3], others, "--", program("live_values", "o2"), stdin=NUMBERS).errors
    )


def test_a_mistake_in_the_condition_is_marked() -> None:
    ended = probed(*CODE, SILENT, "--when", "agr(0)", "--", program("live_values", "o2"))
    assert ended.errors == "shadowgraph: --when: 'agr' is not known; did you mean arg?\n    agr(0)\n    ^^^\n"
    assert (ended.output, ended.status) == ("", 2)


NOT_FINITE = """
int on_entry(struct sg_call *call)
{
    struct { double a, b; float c, d; } record = {__builtin_nan(""), -__builtin_inf(), __builtin_inff(), 1.5f};
    sg_emit(call, &record, sizeof record);
    return 0;
}
"""


def test_what_is_no_finite_number_is_a_text_in_json_and_shown_bare() -> None:
    def refuse(text: str) -> None:
        raise AssertionError(text)

    words = [*SHADOWGRAPH, "probe", "--code", NOT_FINITE, "--event", "a:f8,b:f8,c:f4,d:f4", "-f", "step"]
    path = program("live_execs", "o2", "-pthread")
    ended = run([*words, "--json", "--", path, "1"])
    assert ended.status == 0, ended.errors
    (event,) = [json.loads(line, parse_constant=refuse) for line in ended.lines if '"event"' in line]
    assert event["event"] == {"a": "NaN", "b": "-Infinity", "c": "Infinity", "d": 1.5}
    ended = run([*words, "--", path, "1"])
    assert "  a=nan  b=-inf  c=inf  d=1.5" in ended.output
