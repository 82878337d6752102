"""A spool keeps what was written to it, however the writing ended."""

from __future__ import annotations

import errno
import os
import random
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import shadowgraph
from shadowgraph.errors import UsageError
from shadowgraph.trace import spool_writer
from shadowgraph.trace.convert import convert
from shadowgraph.trace.folder import SPOOL, create_folder
from shadowgraph.trace.framing import HEADER_SIZE
from shadowgraph.trace.spool_reader import Spool
from shadowgraph.trace.spool_writer import DISK_FULL, SIZE_LIMIT, SpoolWriter
from tests.support.synthetic import Call, raw_record

RECORDS = struct.pack("<QQ", 1, 2) * 100


def records_of(spool: Spool) -> dict[int, bytes]:
    return {
        thread: b"".join(os.pread(spool.fd, length, offset) for offset, length in pieces)
        for thread, pieces in spool.pieces.items()
    }


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path / "s")
    assert writer.append("threads", [{"thread": 3, "name": "ä"}])
    assert writer.append_records(3, memoryview(RECORDS), process=2)
    assert writer.append_records(4, RECORDS[:16])
    assert writer.append_records(3, RECORDS[:32], process=2)
    assert writer.append("open", [], process=7)
    writer.close()
    assert writer.size == (tmp_path / "s").stat().st_size
    spool = Spool(tmp_path / "s")
    assert records_of(spool) == {3: RECORDS + RECORDS[:32], 4: RECORDS[:16]}
    assert spool.thread_process == {3: 2, 4: 0}
    assert spool.contents("threads") == [[{"thread": 3, "name": "ä"}]]
    assert spool.chunks["open"] == [(7, [])]
    assert spool.problems == []
    spool.close()


def test_a_spool_is_never_overwritten(tmp_path: Path) -> None:
    SpoolWriter(tmp_path / "s").close()
    with pytest.raises(UsageError, match="cannot be created"):
        SpoolWriter(tmp_path / "s")


def test_a_cut_off_spool_is_read_to_its_last_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "s"
    writer = SpoolWriter(path)
    writer.append_records(0, RECORDS)
    before = writer.size
    writer.append_records(0, RECORDS)
    writer.close()
    for extra in (0, 5, HEADER_SIZE, HEADER_SIZE + 15, HEADER_SIZE + 16, HEADER_SIZE + 500):
        os.truncate(path, before)
        with path.open("ab") as file:
            whole = struct.pack("<QQ", 1, 2) * 100
            header = path.read_bytes()[before - len(whole) - HEADER_SIZE : before - len(whole)]
            file.write((header + whole)[:extra])
        spool = Spool(path)
        expected = 100 + max(0, extra - HEADER_SIZE) // 16
        assert len(records_of(spool)[0]) == expected * 16
        assert bool(spool.problems) == (extra > 0)
        spool.close()


def test_damage_in_the_middle_costs_only_what_it_hits(tmp_path: Path) -> None:
    path = tmp_path / "s"
    writer = SpoolWriter(path)
    writer.append_records(0, RECORDS)
    hit = writer.size
    writer.append_records(1, RECORDS)
    writer.append("threads", [{"thread": 2}])
    json_at = writer.size
    writer.append("threads", [{"thread": 3}])
    writer.append_records(2, RECORDS)
    writer.close()
    data = bytearray(path.read_bytes())
    data[hit + 9] ^= 1
    data[json_at + HEADER_SIZE + 3] ^= 1
    path.write_bytes(data)
    spool = Spool(path)
    assert records_of(spool) == {0: RECORDS, 2: RECORDS}
    assert spool.contents("threads") == [[{"thread": 2}]]
    assert len(spool.problems) == 2
    spool.close()


def test_space_that_was_reserved_and_not_written_is_not_damage(tmp_path: Path) -> None:
    path = tmp_path / "s"
    writer = SpoolWriter(path)
    writer.append_records(0, RECORDS)
    writer.close()
    with path.open("ab") as file:
        file.write(bytes(100_000))
    spool = Spool(path)
    assert records_of(spool) == {0: RECORDS}
    assert spool.problems == []
    spool.close()


@pytest.mark.parametrize("content", [b"\x7fELF" + bytes(500), b"x" * 5000])
def test_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(UsageError, match="not a spool"):
        Spool(tmp_path / "s")


def test_the_size_limit_stops_records_and_lets_the_end_through(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path / "s", max_size=10_000)
    taken = sum(writer.append_records(0, RECORDS) for _ in range(20))
    assert 1 < taken < 20
    assert writer.stopped == SIZE_LIMIT
    assert writer.size <= 10_000
    assert writer.append("end", {"reason": writer.stopped})
    writer.close()
    spool = Spool(tmp_path / "s")
    assert len(records_of(spool)[0]) == taken * len(RECORDS)
    assert spool.contents("end") == [{"reason": SIZE_LIMIT}]
    spool.close()


@pytest.fixture
def small_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", tmp_path], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def test_a_full_disk_stops_records_and_lets_the_end_through(small_disk: Path) -> None:
    writer = SpoolWriter(small_disk / "s")
    piece = RECORDS * 100
    taken = sum(writer.append_records(0, piece) for _ in range(40))
    assert 1 < taken < 40
    assert writer.stopped == DISK_FULL
    assert writer.append("open", [{"thread": 0, "start": n} for n in range(5000)])
    assert writer.append("end", {"reason": writer.stopped})
    writer.close()
    spool = Spool(small_disk / "s")
    assert records_of(spool)[0] == piece * taken
    assert spool.contents("end") == [{"reason": DISK_FULL}]
    assert spool.problems == []
    spool.close()


def test_a_full_disk_without_reservation_leaves_whole_chunks(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "_allocate", lambda *_: errno.EOPNOTSUPP)
    writer = SpoolWriter(small_disk / "s")
    piece = RECORDS * 100
    taken = sum(writer.append_records(0, piece) for _ in range(40))
    assert writer.stopped == DISK_FULL
    assert (small_disk / "s").stat().st_size == writer.size
    writer.close()
    spool = Spool(small_disk / "s")
    assert records_of(spool)[0] == piece * taken
    assert spool.problems == []
    spool.close()


KILLED = """
import os, sys
from shadowgraph.trace.spool_writer import SpoolWriter
writer = SpoolWriter(sys.argv[1])
writer.append_records(0, bytes(range(16)) * 100)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_writer_is_seen_alive_and_what_it_wrote_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(spool_writer.__file__).parents[2])},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        spool = Spool(path)
        assert spool.live
        spool.close()
        process.send_signal(signal.SIGKILL)
    spool = Spool(path)
    assert not spool.live
    assert records_of(spool) == {0: bytes(range(16)) * 100}
    assert spool.problems == []
    spool.close()


def test_a_disk_too_full_for_the_tables_keeps_the_spool(small_disk: Path) -> None:
    folder = create_folder(small_disk / "a.sgt", {})
    writer = SpoolWriter(folder / SPOOL)
    noise = random.Random(1)
    while writer.append_records(0, b"".join(raw_record(noise_call(noise)) for _ in range(2000))):
        pass
    writer.append("end", {"reason": writer.stopped})
    writer.close()
    (small_disk / "filler").write_bytes(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize))
    with pytest.raises(UsageError, match=r"cannot be written.*kept"):
        convert(folder)
    assert (folder / SPOOL).exists()
    spool = Spool(folder / SPOOL)
    written = sum(map(len, records_of(spool).values())) // 16
    spool.close()
    with shadowgraph.open(folder) as trace:
        assert trace.calls_file.rows == written
        assert not trace.calls_file.path.is_relative_to(folder)


def noise_call(noise: random.Random) -> Call:
    start = noise.getrandbits(40)
    return Call(start, noise.getrandbits(16), noise.getrandbits(39), noise.getrandbits(20) + 1)
