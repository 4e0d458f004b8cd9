"""TableRows: the rows of parts as streams of record batches with the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kstore.archive.options import DATE, ExportOptions
from kstore.archive.parts import Work, described
from kstore.archive.plan import Source

if TYPE_CHECKING:
    import pyarrow

    from kstore.archive.typed.topics import TypedTopic

_BATCH_BYTES = 4 << 20


class TableRows:
    """The rows of parts as streams.

    Args: schema: of the table's columns that rows have, with the date if the table is partitioned by it.
    Attributes: count (so far), damage, failure (the error that ended a stream).
    """

    def __init__(
        self,
        schema: pyarrow.Schema,
        options: ExportOptions,
        source: Source,
        *,
        typed: TypedTopic | None,
        threads: int,
        on_bytes: Callable[[int], None],
    ) -> None:
        self.count = 0
        self.damage: list[dict[str, Any]] = []
        self.failure: BaseException | None = None
        self._schema = schema
        self._has_date = DATE in schema.names
        self._typed = typed
        self._options = options
        self._source = source
        self._threads = threads
        self._on_bytes = on_bytes

    def reader(self, todo: Sequence[Work]) -> pyarrow.RecordBatchReader:
        """Return the rows of some parts as a stream that reads them on demand."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self._schema, self._kept(todo))

    def _kept(self, todo: Sequence[Work]) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows, and keep an error in `failure`: the packages report only its text."""
        try:
            yield from self._batches(todo)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = error
            raise

    def _batches(self, todo: Sequence[Work]) -> Iterator[pyarrow.RecordBatch]:
        from kstore.arrow import Scan

        options, typed = self._options, self._typed
        names = [name for name in self._schema.names if name != DATE]
        if self._has_date and "timestamp" not in names:
            names.append("timestamp")
        for work in todo:
            scan = Scan(
                work.ranges,
                since_ms=options.since_ms,
                until_ms=options.until_ms,
                columns=names,
                strings=options.strings if typed is None else typed.strings,
                typed=None if typed is None else typed.rows,
                batch_bytes=_BATCH_BYTES,
                threads=self._threads,
                config=self._source.config,
                env=self._source.env,
                on_error=options.on_error,
                on_skip=lambda skipped: self.damage.append({**skipped.topic_partition._asdict(), **described(skipped)}),
            )
            for batch in scan:
                self.count += batch.num_rows
                rows = _with_date(batch) if self._has_date else batch
                yield rows.select(self._schema.names) if typed is None else typed.conformed(rows)
            self._on_bytes(work.part.size_in_bytes)


def with_date(schema: pyarrow.Schema) -> pyarrow.Schema:
    """Return a schema with the date of the record's timestamp as the last column."""
    import pyarrow as pa

    return schema.append(pa.field(DATE, pa.date32()))


def _with_date(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    import pyarrow as pa

    return batch.append_column(DATE, batch.column("timestamp").cast(pa.date32()))
