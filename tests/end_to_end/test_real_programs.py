"""Programs that every Debian has run under the recorder byte for byte as without it, every function traced included."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.support.build import scratch_folder
from tests.support.recording import Recording, environment, plain_run, record

C_SOURCE = """
#include <stdio.h>
struct point { double x, y; };
static double length(struct point p) { return p.x * p.x + p.y * p.y; }
int main(void) { printf("%f\\n", length((struct point){3, 4})); return 0; }
"""

PERL = r"""
my %count; my $text = join ' ', map { "word$_" } map { $_ * 7 % 31 } 1 .. 400;
$count{$_}++ for $text =~ /(\w+)/g;
print map { "$_ $count{$_}\n" } sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
eval { die { code => 42 } }; print "caught $@->{code}\n"; local $SIG{ALRM} = sub { print "alarm\n" }; kill ALRM => $$;
printf "%.6f %s\n", sqrt(2), sprintf('%b', 1000); open my $pipe, '-|', 'echo from a child' or die; print <$pipe>;
"""

BASH = r"""
fib() { local n=$1; if ((n < 2)); then echo "$n"; else echo $(($(fib $((n-1))) + $(fib $((n-2))))); fi; }
fib 6; declare -A map; for i in {1..50}; do map[$((i % 7))]+="$i "; done; for k in 0 1 2; do echo "$k: ${map[$k]}"; done
trap 'echo trapped' USR1; kill -USR1 $$; (exit 3); echo $?; echo hello | tr a-z A-Z | sed 's/L/_/g'; wait; exit 5
"""

NODE = r"""
const fib = n => n < 2 ? n : fib(n - 1) + fib(n - 2);
const words = Array.from({length: 2000}, (_, i) => `w${i * 7919 % 101}`);
const count = {}; for (const w of words) count[w] = (count[w] || 0) + 1;
console.log(fib(22), Object.keys(count).length, JSON.stringify(count).length);
console.log(require('crypto').createHash('sha256').update('x').digest('hex'));
setTimeout(() => { try { null.x } catch (e) { console.log(e.constructor.name) } process.exitCode = 4; }, 10);
"""

LUA = """
local t = {} for i = 1, 500 do t[#t + 1] = i * 7919 % 101 end
table.sort(t) print(table.concat(t, ' ')) print(pcall(error, 'boom')) os.exit(6)
"""

SQL = """
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i+1 from n where i<3000) insert into t select i, 'r'||i, i*0.5 from n;
create index tb on t(b); select count(*), sum(c), max(b) from t where b like 'r1%';
select hex(zeroblob(4)), typeof(c), printf('%.3f', avg(c)) from t; select x from missing;
"""

PYTHON = r"""
import asyncio, concurrent.futures, ctypes, decimal, json, re, sqlite3, subprocess, sys, threading, zlib
print(json.dumps({"a": [1, 2.5, None]}), re.findall(r"\w+", "some words"), zlib.crc32(b"x" * 10000))
with concurrent.futures.ThreadPoolExecutor(8) as pool: print(sum(pool.map(lambda n: n * n, range(500))))
async def tick(n): await asyncio.sleep(0); return n
async def all_ticks(): return await asyncio.gather(*map(tick, range(50)))
print(sum(asyncio.run(all_ticks())))
print(subprocess.run(["echo", "child"], capture_output=True).stdout, decimal.Decimal(2).sqrt())
base = sqlite3.connect(":memory:"); print(base.execute("select sum(value) from json_each('[1,2,3]')").fetchall())
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
print(deep(900))
try: deep(10**6)
except RecursionError as error: print(type(error).__name__)
print(ctypes.CDLL(None).abs(-5)); print("to stderr", file=sys.stderr); sys.exit(7)
"""


@dataclass(frozen=True)
class Case:
    """A command line; the text files it finds beside it; what it reads."""

    command: list[str]
    stdin: bytes = b""


def text(lines: int) -> bytes:
    return b"".join(b"%d line %d of %s\n" % (k * 7919 % 1009, k, b"x" * (k % 13)) for k in range(lines))


CASES = {
    "awk": Case(["awk", "{ n[$1 % 10] += NF } END { for (k = 0; k < 10; k++) print k, n[k] }", "lines.txt"]),
    "bash": Case(["bash", "script.sh"]),
    "bc": Case(
        ["bc", "-l"], b"scale=60; 4*a(1); define f(n) { if (n<2) return (n); return (f(n-1)+f(n-2)); }; f(15)\n"
    ),
    "bzip2": Case(["bzip2", "-c", "lines.txt"]),
    "diff": Case(["diff", "lines.txt", "script.pl"]),
    "find": Case(["find", "/usr/include/x86_64-linux-gnu/sys", "-name", "*.h", "-size", "+1k"]),
    "gcc": Case(["gcc", "-O2", "-S", "-o", "-", "program.c"]),
    "git": Case(["git", "-C", "repository", "log", "--stat", "--format=%an %s", "-p"]),
    "grep": Case(["grep", "-nE", "(7|9)+ line [0-9]*5 ", "lines.txt"]),
    "gzip": Case(["gzip", "-9c", "lines.txt"]),
    "lua": Case(["lua5.4", "script.lua"]),
    "make": Case(["make", "-C", "makefolder", "--no-print-directory"]),
    "node": Case(["node", "script.js"]),
    "objdump": Case(["objdump", "-d", "/usr/bin/true"]),
    "openssl": Case(["openssl", "dgst", "-sha512", "lines.txt"]),
    "perl": Case(["perl", "script.pl"]),
    "python": Case([sys.executable, "script.py"]),
    "sed": Case(["sed", "-E", "s/line ([0-9]+)/\\1 enil/; /x{5}/d", "lines.txt"]),
    "sort": Case(["sort", "-n", "-k1", "--parallel=4", "-S", "1M", "lines.txt"]),
    "sqlite3": Case(["sqlite3", ":memory:"], SQL.encode()),
    "tar": Case(["tar", "--mtime=@0", "--owner=0", "--group=0", "-czf", "-", "lines.txt", "script.py"]),
    "tclsh": Case(
        ["tclsh"], b"proc f n {expr {$n < 2 ? $n : [f [expr $n-1]] + [f [expr $n-2]]}}\nputs [f 15]\nexit 3\n"
    ),
    "xz": Case(["xz", "-T2", "-c", "lines.txt"]),
}


@pytest.fixture(scope="module")
def folder() -> Path:
    """A folder with what the commands read."""
    place = scratch_folder() / "real-programs"
    (place / "makefolder").mkdir(parents=True)
    contents = {
        "lines.txt": text(20000).decode(),
        "program.c": C_SOURCE,
        "script.js": NODE,
        "script.lua": LUA,
        "script.pl": PERL,
        "script.py": PYTHON,
        "script.sh": BASH,
        "makefolder/Makefile": "all: a b\n\t@echo $^\na b:\n\t@expr 3 \\* 4; echo made $@\n",
    }
    for name, content in contents.items():
        (place / name).write_text(content)
    repository = place / "repository"
    repository.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=N", "-c", "user.email=n@example.org"]
    for step in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *step], check=True, env=environment())
    shutil.copy(place / "script.pl", repository / "file")
    for step in (["add", "file"], ["commit", "-q", "-m", "second"]):
        subprocess.run([*git, *step], check=True, env=environment())
    return place


def case_of(name: str) -> Case:
    """Skips the test where the program is not installed."""
    case = CASES[name]
    if shutil.which(case.command[0]) is None:
        pytest.skip(f"{case.command[0]} is not installed")
    return case


def recorded(case: Case, folder: Path, *options: str) -> Recording:
    return record(case.command, *options, stdin=case.stdin, folder=folder, timeout=300)


def modules_called(recording: Recording) -> set[str]:
    """The files of which functions were recorded."""
    rows = parquet.read_table(recording.folder / "functions.parquet").to_pylist()
    return {Path(row["module_path"]).name for row in rows if row["calls"]}


@pytest.mark.parametrize("name", CASES)
def test_program_is_the_same_with_its_functions_traced(name: str, folder: Path) -> None:
    case = case_of(name)
    recording = recorded(case, folder)
    assert recording.outcome == plain_run(case.command, stdin=case.stdin, folder=folder)
    assert modules_called(recording)


@pytest.mark.parametrize("name", CASES)
def test_program_is_the_same_with_every_function_of_every_module_traced(name: str, folder: Path) -> None:
    case = case_of(name)
    recording = recorded(case, folder, "--all")
    assert recording.outcome == plain_run(case.command, stdin=case.stdin, folder=folder)
    assert {recording.program.name, "libc.so.6"} <= modules_called(recording)


@pytest.mark.parametrize("module", ["test_json", "test_re", "test_struct", "test_threading_local", "test_generators"])
def test_python_passes_its_own_tests(module: str) -> None:
    if importlib.util.find_spec("test.libregrtest") is None or importlib.util.find_spec(f"test.{module}") is None:
        pytest.skip("Python's own tests are not installed")
    done = record([sys.executable, "-m", "test", "-q", module], timeout=300).outcome
    assert (done.status, b"Result: SUCCESS" in done.output) == (0, True), done.output[-2000:]
