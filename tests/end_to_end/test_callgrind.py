"""Call counts of real programs equal callgrind's, function by function; each class of difference is named here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.build import scratch_folder
from tests.support.callgrind import (
    Difference,
    callgrind_profile,
    callgrind_variables,
    calls_by_address,
    count_differences,
)
from tests.support.recording import record

SQL = """
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i+1 from n where i<2000)
  insert into t select i, 'row '||i, i*0.5 from n;
create index tb on t(b);
select count(*), sum(c), max(b) from t where b like 'row 1%';
select b, c from t order by c desc limit 5;
update t set c = c+1 where a % 3 = 0; delete from t where a % 7 = 0;
select group_concat(a) from t where a < 30;
"""

LUA = """
local t = {} for i=1,3000 do t[i] = (i*7919)%1009 end table.sort(t)
local s = {} for i=1,2000 do s[#s+1] = string.format("%d:%s", t[i], ("x"):rep(i%5)) end
local j = table.concat(s, ",") local n = 0 for w in j:gmatch("%d+") do n = n + tonumber(w) end
local function fib(n) if n < 2 then return n end return fib(n-1)+fib(n-2) end
print(n, fib(18), pcall(error, "boom"), select('#', table.unpack(t, 1, 50)))
"""

PYTHON = r"""
import json, re
def fib(n): return n if n < 2 else fib(n-1)+fib(n-2)
d = {"a": [1, 2, 3.5, None, True], "b": {"c": "text"}}
for i in range(20):
    assert json.loads(json.dumps(d)) == d
print(fib(12), re.sub(r"(\d+)", lambda m: str(int(m[1])*2), "a1b22c333"), sorted(range(50), key=lambda x: -x)[:5])
"""


def library(program: Path, name: str) -> Path:
    """A library that a program is linked to, by the beginning of its name; the program itself where there is none."""
    lines = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return next((Path(line.split()[2]).resolve() for line in lines if line.strip().startswith(name)), program)


def written(name: str, content: str | bytes) -> str:
    # In a folder of its own: Python lists the folder of its script.
    path = Path(tempfile.mkdtemp(dir=scratch_folder())) / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def compared(
    command: list[str],
    options: list[str],
    module: Path,
    stdin: bytes = b"",
    variables: dict[str, str] | None = None,
) -> tuple[int, list[Difference]]:
    """How many functions of a module were called, and which differ in more than the start-up objects do."""
    outcome, profiles = callgrind_profile(command, stdin=stdin, variables=variables)
    recording = record(command, *options, stdin=stdin, variables=callgrind_variables() | (variables or {}))
    assert recording.outcome == outcome
    called, differences = count_differences(recording, module, profiles[str(module.resolve())])
    return called, [difference for difference in differences if not is_start_up(difference)]


START_UP = {
    "__do_global_dtors_aux",
    "_fini",
    "_init",
    "_start",
    "deregister_tm_clones",
    "frame_dummy",
    "not in the trace",
    "register_tm_clones",
}


def is_start_up(difference: Difference) -> bool:
    """frame_dummy, register_tm_clones and their like in every program's start-up objects.

    They have no unwind information, so nothing says in a stripped program that they are functions, and some are entered
    by falling into them. Each runs once.
    """
    return max(difference.callgrind, difference.traced) == 1 and difference.name in START_UP


# CPython's method cache goes by addresses: where two names collide differs from run to run.
BY_ADDRESS = {
    "PyErr_Occurred",
    "_PyDict_GetItem_KnownHash",
    "_Py_dict_lookup",
    "assign_version_tag.isra.0",
    "find_name_in_mro",
    "unicodekeys_lookup_unicode",
}
# importlib's locks compare thread identities, which are addresses: below 2**30 under valgrind, above it otherwise, and
# small integers are compared without a call.
BY_THREAD_IDENTITY = {
    "PyObject_RichCompare",
    "PyObject_RichCompareBool",
    "_Py_Specialize_CompareOp",
    "long_richcompare",
}


def goes_by_address(difference: Difference) -> bool:
    """Counts within CPython that depend on where things lie; a few calls in a hundred at most."""
    apart = abs(difference.callgrind - difference.traced)
    if difference.name in BY_THREAD_IDENTITY:
        return apart <= 50
    return difference.name in BY_ADDRESS and apart <= difference.callgrind // 10


def listed(differences: list[Difference]) -> str:
    return "\n".join(map(str, differences))


def test_gzip() -> None:
    data = written("data.bin", Path(sys.executable).resolve().read_bytes() * 20)
    called, differences = compared(["gzip", "-c", data], [], Path("/usr/bin/gzip"))
    assert not differences, listed(differences)
    assert called > 30


def test_lua() -> None:
    program, command = Path("/usr/bin/lua5.4"), ["lua5.4", written("script.lua", LUA)]
    called, differences = compared(command, [], program)
    # Lua hashes its strings with a seed made of addresses and the time: one function differs, and does so in every run.
    assert len(differences) <= 1
    runs = [calls_by_address(record(command), program) for _ in range(4 * len(differences))]
    assert all(len({counts[d.address] for counts in runs}) > 1 for d in differences)
    assert called > 300


@pytest.mark.parametrize("module", ["program", "library"])
def test_sqlite(module: str) -> None:
    program = Path("/usr/bin/sqlite3")
    options, path = ([], program) if module == "program" else (["-m", "libsqlite3*"], library(program, "libsqlite3"))
    called, differences = compared(["sqlite3", ":memory:"], options, path, SQL.encode())
    assert not differences, listed(differences)
    assert called > (20 if module == "program" else 700)


def test_python() -> None:
    program = Path(sys.executable).resolve()
    module = library(program, "libpython")
    options = [] if module == program else ["-m", "libpython*"]
    # How many pools CPython's own allocator takes hangs on what mmap gives it, which is aligned by chance.
    variables = {"PYTHONMALLOC": "malloc"}
    command = [str(program), "-s", "-S", written("script.py", PYTHON)]
    called, differences = compared(command, options, module, variables=variables)
    unexplained = [difference for difference in differences if not goes_by_address(difference)]
    assert not unexplained, listed(unexplained)
    assert called > 1500
