"""Files under construction: OutputFile, which counts and checks what is written; RowFile, Parquet or Arrow over one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore._core import crc32c
from kstore.archive.options import ExportOptions
from kstore.config import MIB
from kstore.env import Closing, Env, ReadFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow
    from typing_extensions import Buffer

_BUFFER_BYTES = MIB
_RISING = ("offset", "timestamp")
_NOT_REPEATING = (*_RISING, "key", "value", "headers")


class OutputFile(Closing):
    """A new file that is written in sequence, with the CRC-32C of its bytes. Not thread-safe.

    pyarrow writes to it as to any Python file.
    Attributes: size_in_bytes, crc32c (of what was written so far).
    """

    def __init__(self, path: str, env: Env) -> None:
        self._file = env.create_file(path)
        self.size_in_bytes = 0
        self.crc32c = 0
        self.closed = False
        self._pending = bytearray()

    def write(self, data: Buffer) -> int:
        """Append bytes, buffered up to 1 MiB; return their number."""
        view = memoryview(data).cast("B")
        size = len(view)
        self.size_in_bytes += size
        if len(self._pending) + size <= _BUFFER_BYTES:
            self._pending += view
            return size
        self.flush()
        if size < _BUFFER_BYTES:
            self._pending += view
        else:
            self._append(view)
        return size

    def flush(self) -> None:
        """Hand everything to the operating system."""
        pending, self._pending = self._pending, bytearray()
        if pending:
            self._append(memoryview(pending))

    def sync(self) -> None:
        """Wait until the content survives a power cut."""
        self.flush()
        self._file.sync()

    def close(self) -> None:
        """Close the file, with what was not flushed dropped; a second call does nothing."""
        self.closed = True
        self._file.close()

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self.size_in_bytes

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def _append(self, view: memoryview) -> None:
        self.crc32c = crc32c(view, self.crc32c)
        self._file.append(view)


class Finished(NamedTuple):
    """The size and the CRC-32C of a file that is durable."""

    size_in_bytes: int
    crc32c: int


class RowFile(Closing):
    """A Parquet or Arrow file that is written row group by row group. Not thread-safe."""

    def __init__(self, path: str, schema: pyarrow.Schema, options: ExportOptions, env: Env) -> None:
        import pyarrow as pa

        self._output = OutputFile(path, env)
        try:
            sink = pa.PythonFile(self._output, mode="w")
            self._writer = (
                _parquet_writer(sink, schema, options)
                if options.format == "parquet"
                else _ipc_writer(sink, schema, options)
            )
        except BaseException:
            self._output.close()
            raise
        self._row_group_rows = options.row_group_rows

    @property
    def size_in_bytes(self) -> int:
        """The size of the row groups so far."""
        return self._output.size_in_bytes

    def write(self, batches: Sequence[pyarrow.RecordBatch]) -> None:
        """Write batches as one row group."""
        import pyarrow as pa

        table = pa.Table.from_batches(batches)
        if isinstance(self._writer, pa.ipc.RecordBatchFileWriter):
            for batch in table.combine_chunks().to_batches():
                self._writer.write_batch(batch)
            return
        self._writer.write_table(table, row_group_size=self._row_group_rows)

    def finish(self) -> Finished:
        """Write the end of the file, and wait until it survives a power cut."""
        self._writer.close()
        self._output.sync()
        return Finished(self._output.size_in_bytes, self._output.crc32c)

    def close(self) -> None:
        """Close the file, finished or not."""
        self._output.close()


def _parquet_writer(sink: Any, schema: pyarrow.Schema, options: ExportOptions) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(sink, schema, **parquet_settings(options))


def parquet_settings(options: ExportOptions) -> dict[str, Any]:
    """Return the arguments of pyarrow.parquet.ParquetWriter.

    Only columns with repeating values are dictionary-encoded, and rising integers are delta-encoded: faster and smaller
    than pyarrow's defaults, which typed keys and values have.
    """
    if options.formats:
        return {"compression": options.codec}
    repeating = [name for name in options.columns if name not in _NOT_REPEATING]
    rising = {name: "DELTA_BINARY_PACKED" for name in options.columns if name in _RISING}
    return {"compression": options.codec, "use_dictionary": repeating, "column_encoding": rising or None}


def _ipc_writer(sink: Any, schema: pyarrow.Schema, options: ExportOptions) -> Any:
    import pyarrow as pa

    codec = None if options.codec == "none" else options.codec
    return pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec))


class _RawInput(io.RawIOBase):
    """An open file as a raw Python file, for pyarrow. Not thread-safe."""

    def __init__(self, file: ReadFile) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size()}
        self._position = starts[whence] + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = self._file.pread_into(memoryview(buffer).cast("B"), position=self._position)
        self._position += count
        return count


@contextmanager
def _opened(path: str, env: Env) -> Iterator[_RawInput]:
    with env.open_read(path) as file, _RawInput(file) as raw:
        yield raw


def read_rows(path: str, options: ExportOptions, env: Env) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a finished file, in batches of about a row group.

    Raises: StorageError; pyarrow.ArrowException for a file that is not what it should be.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _opened(path, env) as file:
        if options.format == "parquet":
            yield from pq.ParquetFile(file).iter_batches(batch_size=min(options.row_group_rows, 64 * 1024))
            return
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def crc_of(path: str, env: Env) -> Finished:
    """Return the size and the CRC-32C of a file.  Raises: StorageError.  Cost: reads it."""
    crc = 0
    with env.open_read(path) as file:
        size = file.size()
        for chunk in file.chunks(size, position=0):
            crc = crc32c(chunk, crc)
    return Finished(size, crc)


class RowFacts(NamedTuple):
    """How many rows a file has, and their least and greatest offset; None without an offset column."""

    row_count: int
    first_offset: int | None
    last_offset: int | None


def facts_of_rows(path: str, options: ExportOptions, env: Env) -> RowFacts:
    """Return the row count and the offset bounds of a finished file.

    Raises: as read_rows.  Cost: reads the footer, of an Arrow file the offsets too.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with _opened(path, env) as file:
        bounds: list[tuple[int, int]] = []
        if options.format == "parquet":
            footer = pq.ParquetFile(file).metadata
            for number in range(footer.num_row_groups):
                group = footer.row_group(number)
                columns = map(group.column, range(group.num_columns))
                statistics = (column.statistics for column in columns if column.path_in_schema == "offset")
                bounds += [(stats.min, stats.max) for stats in statistics if stats is not None and stats.has_min_max]
            count = footer.num_rows
        else:
            reader = pa.ipc.open_file(file)
            count = 0
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                count += batch.num_rows
                if batch.num_rows and "offset" in batch.schema.names:
                    bounds.append(tuple(pc.min_max(batch.column("offset")).as_py().values()))
    first, last = (min(bounds)[0], max(end for _, end in bounds)) if bounds else (None, None)
    return RowFacts(count, first, last)
