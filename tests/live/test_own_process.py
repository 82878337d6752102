"""attach_self(): a Python process traces its own libraries, and is otherwise as ever. Each test is a process."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import shadowgraph as sg
from shadowgraph.ops.processes import runs
from tests.support.elf_files import compile_text
from tests.support.live import until
from tests.support.manners import usual_environment

LIBRARY = """
static volatile int one = 1;
int own_step(int x) { return x + one; }
long many(long n) { long sum = 0; for (long i = 0; i < n; i++) sum += own_step(i); return sum; }
"""
HEAD = """
import asyncio, ctypes, gc, os, signal, sqlite3, subprocess, sys, threading, time
import shadowgraph as sg
library = ctypes.CDLL({library!r})
library.many.restype = ctypes.c_long
library.many.argtypes = [ctypes.c_long]
STEP, MANY = "libown.so!own_step", "libown.so!many"

def code():
    "All of the code that is mapped from files, as it is now."
    from shadowgraph.target.memory import read_mappings
    with open("/proc/self/mem", "rb", 0) as memory:
        found = {{}}
        for m in read_mappings(os.getpid()):
            if "x" in m.permissions and m.path.startswith("/") and "agent" not in m.path and "memfd" not in m.path:
                memory.seek(m.start)
                found[m.path, m.start] = hash(memory.read(m.end - m.start))
        return found

def status(name):
    return next(line.split()[1] for line in open("/proc/self/status") if line.startswith(name + ":"))
"""


@cache
def library() -> Path:
    return compile_text(LIBRARY, "-O1 -fno-inline -fno-ipa-ra -shared -fPIC", name="libown.so")


def python(script: str, status: int = 0) -> list[str]:
    """Run a script behind HEAD to its end; the lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD.format(library=str(library())) + script],
        env=usual_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_calls_of_sqlite_are_counted_exactly_and_the_process_is_left_as_it_was() -> None:
    script = """
db = sqlite3.connect(":memory:")
before, files = code(), sorted(os.listdir("/proc/self/fd"))
with sg.attach_self() as target:
    steps = target.register(sg.Counter(["libsqlite3.so*!sqlite3_prepare_v[23]"]))
    assert code() != before
    for i in range(50):
        db.execute(f"select {i}").fetchall()
    steps.pause()
    db.execute("select 'paused'").fetchall()
    steps.resume()
    db.execute("select 'resumed'").fetchall()
    print(sum(steps.counts().values()), len(target.users), target.users[0]["controller"] == os.getpid())
del target, steps
gc.collect()
print(before.items() <= code().items(), status("TracerPid"), sorted(os.listdir("/proc/self/fd")) == files)
"""
    assert python(script) == ["51 1 True", "True 0 True"]


def test_all_kinds_of_users_work_on_a_library_of_ctypes() -> None:
    script = '''
source = """
int on_entry(struct sg_call *call) { *(uint64_t *)call->data = sg_arg(call, 0); return 1; }
void on_exit(struct sg_call *call)
{
    int64_t record[2] = {*(int64_t *)call->data, call->result};
    sg_emit(call, record, sizeof record);
}
"""
with sg.attach_self() as target:
    count = target.register(sg.Counter([STEP]))
    some = target.register(sg.Counter([STEP], when="i32(arg(0)) % 10 == 3"))
    results = target.register(sg.Histogram([STEP], value="result"))
    times = target.register(sg.Totals([MANY]))
    ops = target.register(sg.Ops([MANY], source=source, entry="on_entry", exit="on_exit", data_size=8,
                                 events=[("n", "i8"), ("sum", "i8")]))
    for n in (10, 20, 30):
        assert library.many(n) == n * (n + 1) // 2
    ops.unregister()
    print([(int(n), int(s)) for batch in ops.events() for n, s in zip(batch["n"], batch["sum"])])
    print(count.counts(), some.counts(), some.filtered)
    print(times.totals()[MANY]["count"], results.percentiles(STEP)["max"])
print(count.counts()[STEP])
'''
    counted = "{'libown.so!own_step': 60} {'libown.so!own_step': 6} 54"
    assert python(script) == ["[(10, 55), (20, 210), (30, 465)]", counted, "3 30", "60"]


def test_threads_an_event_loop_and_subprocesses_go_on_while_users_come_and_go() -> None:
    script = """
import numpy
calls, stop = [0] * 4, False

def work(n):
    while not stop:
        assert library.many(100) == 5050
        assert numpy.linalg.solve(numpy.eye(4) * 2, numpy.ones(4))[0] == 0.5
        calls[n] += 1

async def beats():
    count = 0
    while not stop:
        await asyncio.sleep(0.001)
        assert await asyncio.to_thread(library.many, 1) == 1
        count += 1
    return count

def flap():
    global stop
    done = 0
    with sg.attach_self() as target:
        before = sum(calls)
        stays = target.register(sg.Counter([MANY], when="arg(0) == 100"))
        after = sum(calls)
        for _ in range(15):
            with_time = target.register(sg.Totals([STEP, MANY]))
            done += subprocess.run(["true"]).returncode == 0
            with_time.unregister()
        stop = True
        for thread in threads:
            thread.join()
        seen = stays.counts()[MANY]
    # Each thread may have been in a call when the counter came, or about to note one.
    print(done, sum(calls) - after - len(calls) <= seen <= sum(calls) - before + len(calls))

threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]

async def main():
    for thread in threads:
        thread.start()
    beating = asyncio.create_task(beats())
    await asyncio.to_thread(flap)
    print(await beating > 10)

asyncio.run(main())
"""
    assert python(script) == ["15 True", "True"]


def test_threads_lose_no_call_of_theirs() -> None:
    script = """
with sg.attach_self() as target:
    count = target.register(sg.Counter([STEP, MANY]))
    threads = [threading.Thread(target=lambda: [library.many(1000) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        target.register(sg.Totals([MANY])).unregister()
    for thread in threads:
        thread.join()
    print(sorted(count.counts().items()), count.missed)
"""
    assert python(script) == ["[('libown.so!many', 800), ('libown.so!own_step', 800000)] 0"]


def test_the_helper_is_nobodys_child_and_forked_children_are_counted_and_register_nobody() -> None:
    script = """
with sg.attach_self() as target:
    count = target.register(sg.Counter([STEP]))
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("no child", flush=True)
    child = os.fork()
    if not child:
        assert library.many(7) == 28
        try:
            target.register(sg.Counter([MANY]))
        except sg.errors.UsageError as error:
            print("calls attach_self() for itself" in str(error), flush=True)
        sys.exit(3)  # closes nothing of the parent's
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    library.many(5)
    print(count.counts()[STEP])
"""
    assert python("import shadowgraph.errors\n" + script) == ["no child", "True", "3", "12"]


def test_an_interpreter_that_ends_takes_everything_out_and_the_helper_with_it() -> None:
    script = """
target = sg.attach_self()
count = target.register(sg.Counter([MANY]))
library.many(5)
print(target._helper, count.counts()[MANY])
sys.exit(4)
"""
    helper, count = python(script, status=4)[0].split()
    assert count == "1"
    until(lambda: not runs(int(helper)))


def test_without_its_helper_the_process_goes_on_and_says_so() -> None:
    script = """
import shadowgraph.errors
target = sg.attach_self()
count = target.register(sg.Counter([MANY]))
os.kill(target._helper, signal.SIGKILL)
library.many(5)
print(count.counts()[MANY])
try:
    target.register(sg.Counter([STEP]))
except shadowgraph.errors.StartError as error:
    print(str(error) == f"the helper process {target._helper} has ended, so this process cannot be changed")
try:
    target.close()
except shadowgraph.errors.StartError as error:
    print("has ended" in str(error))
assert library.many(5) == 15
with sg.attach_self() as other:
    again = other.register(sg.Counter([MANY]))
    library.many(5)
    print(again.counts()[MANY])
"""
    assert python(script) == ["1", "True", "True", "1"]


def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path) -> None:
    script = f"""
import shadowgraph.errors
with sg.attach_self() as target:
    for attempt in (target.wait, lambda: target.register(sg.Counter(["libown.so!own_stpe"])),
                    lambda: target.register(sg.Recorder({str(tmp_path / "t.sgt")!r}, ["libown.so!own_stpe"])),
                    lambda: target.register(sg.Recorder({str(tmp_path / "no" / "t.sgt")!r}, [STEP]))):
        try:
            attempt()
        except shadowgraph.errors.UsageError as error:
            print(str(error).partition("; ")[0].rpartition(": ")[2])
"""
    assert python(script) == [
        "this process cannot wait for itself",
        "no function matches libown.so!own_stpe",
        "no function matches libown.so!own_stpe",
        f"there is no folder {tmp_path / 'no'}",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_process_records_itself_with_all_of_its_threads_in_it(tmp_path: Path) -> None:
    """With a buffer that is full all the time: threads wait for room, some of them with the interpreter's lock."""
    script = f"""
before, files = code(), sorted(os.listdir("/proc/self/fd"))
holds_it = ctypes.PyDLL({str(library())!r}).many
with sg.attach_self() as target:
    recorder = target.register(sg.Recorder({str(tmp_path / "t.sgt")!r}, [STEP], buffer=1 << 19))
    some = target.register(sg.Recorder({str(tmp_path / "some.sgt")!r}, [STEP], when="arg(0) < 10"))
    threads = [threading.Thread(target=function, args=(100_000,)) for function in (holds_it, library.many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.pause()
    library.many(5)
    recorder.resume()
    library.many(7)
    recorder.unregister()
    library.many(11)
    print(recorder.missed, recorder.is_registered, some.is_registered, len(target.users))
del target, recorder, some
gc.collect()
print(before.items() <= code().items(), status("TracerPid"), sorted(os.listdir("/proc/self/fd")) == files)
for name in ("t", "some"):
    trace = sg.open(f"{tmp_path!s}/{{name}}.sgt")
    print(len(trace.calls), trace.counters)
"""
    assert python(script) == [
        "0 False True 1",
        "True 0 True",
        "200007 {'missed': 0, 'dropped': 0, 'filtered': 0}",
        f"{10 + 10 + 5 + 7 + 10} {{'missed': 0, 'dropped': 0, 'filtered': {200_023 - 42}}}",
    ]


def test_a_recording_of_the_own_process_is_whole_when_the_interpreter_ends(tmp_path: Path) -> None:
    script = f"""
target = sg.attach_self()
recorder = target.register(sg.Recorder({str(tmp_path / "t.sgt")!r}, [STEP]))
library.many(1000)
"""
    assert python(script) == []
    with sg.open(tmp_path / "t.sgt") as trace:
        assert len(trace.calls) == 1000


def test_a_process_that_is_killed_while_it_records_itself_leaves_a_trace(tmp_path: Path) -> None:
    script = f"""
target = sg.attach_self()
recorder = target.register(sg.Recorder({str(tmp_path / "t.sgt")!r}, [STEP]))
library.many(1000)
print(recorder.place.registry.user(recorder.place.slot)["controller_pid"], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    recorder = int(python(script, status=-9)[0])
    until(lambda: not runs(recorder))
    with sg.open(tmp_path / "t.sgt") as trace:
        assert len(trace.calls) == 1000
