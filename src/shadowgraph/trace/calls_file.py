"""The table of calls as a file: row groups, what they cover, and reading them one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shadowgraph.errors import UsageError
from shadowgraph.trace.folder import CALLS_FOOTER
from shadowgraph.trace.tables import calls_schema

__all__ = ["CallsFile", "RowGroup", "column_address"]


class RowGroup(NamedTuple):
    """What the footer says about a row group; times in nanoseconds."""

    number: int
    first_row: int
    rows: int
    first_thread: int
    last_thread: int
    first_start: int
    last_start: int
    longest: int
    first_kind: int
    last_kind: int


class CallsFile:
    """`calls.parquet`, read one row group at a time; a row group that cannot be read is left out and told."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.path = path
        self._problems = problems
        try:
            self._file = pq.ParquetFile(path, page_checksum_verification=True)
        except FileNotFoundError:
            raise UsageError(f"{path}: is missing: the trace is not whole") from None
        except PermissionError:
            raise UsageError(f"{path}: cannot be read: permission denied") from None
        except (OSError, pa.ArrowException) as error:
            self._file = self._with_spare_footer(str(error).splitlines()[0])
        self.schema: pa.Schema = self._file.schema_arrow
        needed = calls_schema(values=False)
        if any(
            name not in self.schema.names or self.schema.field(name).type != needed.field(name).type
            for name in needed.names
        ):
            raise UsageError(f"{path}: holds no calls, so {path.parent} is not a trace, or damaged")
        self.rows: int = self._file.metadata.num_rows

    def _with_spare_footer(self, reason: str) -> pq.ParquetFile:
        """The file with the copy of its footer that lies beside it: what is left of a cut-off file is readable."""
        try:
            spare = pq.read_metadata(self.path.with_name(CALLS_FOOTER))
            opened = pq.ParquetFile(self.path, metadata=spare, page_checksum_verification=True)
        except (OSError, pa.ArrowException):
            raise UsageError(f"{self.path}: is damaged ({reason})") from None
        self._problems.append(f"{self.path.name} is damaged or cut off; it is read with the copy of its footer")
        return opened

    def offset_of(self, number: int) -> int:
        """Where in the file a row group begins, in bytes."""
        column = self._file.metadata.row_group(number).column(0)
        return int(min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset))

    @cached_property
    def row_groups(self) -> list[RowGroup]:
        """All row groups, in order."""
        metadata = self._file.metadata
        columns = {metadata.schema.column(index).name: index for index in range(metadata.num_columns)}
        groups, row = [], 0
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            thread, start, duration, kind = (
                group.column(columns[name]).statistics for name in ("thread", "start_ns", "duration_ns", "kind")
            )
            rows = group.num_rows
            bounds = (thread.min, thread.max, start.min, start.max, duration.max, kind.min, kind.max)
            groups.append(RowGroup(index, row, rows, *bounds))
            row += rows
        return groups

    def read(self, group: RowGroup, columns: list[str]) -> pa.RecordBatch | None:
        """The columns of a row group as one batch, None where it is damaged."""
        try:
            table = self._file.read_row_group(group.number, columns=columns, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            first, last = group.first_row, group.first_row + group.rows - 1
            reason = str(error).splitlines()[0]
            problem = f"calls {first} to {last} cannot be read and were left out ({reason})"
            if problem not in self._problems:
                self._problems.append(problem)
            return None
        return table.combine_chunks().to_batches()[0].select(columns)

    def batches(
        self, columns: list[str], first: int, last: int, time: tuple[int | None, int | None] | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows from ``first`` to ``last`` (exclusive), without row groups that lie outside of ``time``."""
        for group in self.row_groups:
            begin, end = max(first, group.first_row), min(last, group.first_row + group.rows)
            if begin >= end or (time is not None and not _may_touch(group, *time)):
                continue
            batch = self.read(group, columns)
            if batch is not None:
                yield batch.slice(begin - group.first_row, end - begin)


def _may_touch(group: RowGroup, begin: int | None, end: int | None) -> bool:
    """Whether calls of a row group may have been in flight between two times."""
    return (end is None or group.first_start < end) and (begin is None or group.last_start + group.longest >= begin)


def column_address(batch: pa.RecordBatch, name: str) -> int:
    """The address of the first value of a column without nulls."""
    column: Any = batch.column(name)
    return int(column.buffers()[1].address + column.offset * column.type.bit_width // 8)


def as_numpy(batch: pa.RecordBatch, name: str) -> np.ndarray[Any, Any]:
    """A column as an array, without a copy."""
    return batch.column(name).to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]
