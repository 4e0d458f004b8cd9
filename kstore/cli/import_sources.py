"""Input of `kstore import`: JSON lines as `kstore cat --json` writes them, Parquet and Arrow files."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.cli.arguments import WrongUseError
from kstore.config import MAX_INT32
from kstore.log.env import lines_of, open_foreign
from kstore.log.files.names import MAX_PARTITION
from kstore.types import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow

ARROW_SUFFIXES = (".parquet", ".arrow", ".arrows", ".feather")
STANDARD_INPUT = "-"
_ARROW_FILE_START = b"ARROW1"
_PACKED_COLUMNS = ("key", "value", "timestamp", "headers")
_NAMED_COLUMNS = (*_PACKED_COLUMNS, "offset", "topic", "partition", "isControl")


class Row(NamedTuple):
    """One record of a JSON line. place: names the line in error messages."""

    place: str
    topic: str | None
    partition: int | None
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def json_rows(path: str) -> Iterator[Row]:
    """Yield the records of a file of JSON lines, or of standard input, without control records.

    Raises: WrongUseError that names the line; StorageError.
    """
    if path == STANDARD_INPUT and sys.stdin is None:
        raise WrongUseError("standard input is closed")
    opened = nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else open_foreign(path)
    with opened as file:
        for number, line in enumerate(lines_of(file, path), start=1):
            place = f"line {number} of {path}"
            try:
                fields = json.loads(line)
                if not isinstance(fields, dict):
                    raise ValueError("expected an object")
                if "controlType" not in fields:
                    yield _row(fields, place)
            except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
                reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
                raise WrongUseError(f"{place} is not a record: {reason}") from error


def _row(fields: dict[str, Any], place: str) -> Row:
    topic, partition = fields.get("topic"), fields.get("partition")
    if topic is not None and not isinstance(topic, str):
        raise ValueError(f"topic must be a string, found {topic!r}")
    if partition is not None:
        _number(partition, name="partition", limit=MAX_PARTITION)
    return Row(
        place=place,
        topic=topic,
        partition=partition,
        offset=_number(fields.get("offset", 0), name="offset", limit=MAX_OFFSET - 1),
        timestamp_ms=_number(fields["timestamp"], name="timestamp", limit=MAX_OFFSET, least=-1),
        key=_bytes(fields.get("key")),
        value=_bytes(fields.get("value")),
        headers=tuple((_header_key(key), _bytes(value)) for key, value in fields.get("headers") or ()),
    )


def _header_key(key: object) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a header's key must be a string, found {key!r}")
    return key


def _number(value: object, *, name: str, limit: int, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= limit:
        raise ValueError(f"{name} must be a number from {least} to {limit}, found {value!r}")
    return value


def _bytes(text: object) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"keys and values must be base64 text or null, found {text!r}")
    return base64.b64decode(text, validate=True)


def arrow_batches(path: str) -> Iterator[pyarrow.RecordBatch]:
    """Yield the record batches of a Parquet file, or of an Arrow IPC file or stream.

    Raises: WrongUseError if the file is none of these or pyarrow is not installed; StorageError if it can't be opened.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise WrongUseError(
            f"reading {path} needs pyarrow, which is not installed: pip install 'kstore[arrow]'"
        ) from error
    with open_foreign(path) as file:
        try:
            if path.endswith(".parquet"):
                yield from pq.ParquetFile(file).iter_batches()
            elif file.read(len(_ARROW_FILE_START)) == _ARROW_FILE_START:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
            else:
                file.seek(0)
                yield from pa.ipc.open_stream(file)
        except (pa.ArrowException, OSError) as error:
            raise WrongUseError(f"cannot read {path}: {error}") from error


def split_by_partition(
    batch: pyarrow.RecordBatch, *, topic: str | None, partition: int | None, place: str
) -> Iterator[tuple[str | None, int | None, pyarrow.RecordBatch]]:
    """Yield topic, partition and rows for each partition in a batch, without control records. Rows keep their order.

    Args: topic, partition: if not None, used in place of the columns; place: starts every error message.
    Raises: WrongUseError for a topic, partition or isControl column of a wrong type or with an impossible value.
    """
    import pyarrow.compute as pc

    _check_columns(batch.schema, place)
    if "isControl" in batch.schema.names:
        batch = batch.filter(pc.invert(pc.fill_null(batch.column("isControl"), False)))
    for name, rows in _groups(batch, "topic", given=topic, place=place):
        for number, part in _groups(rows, "partition", given=partition, place=place):
            if number is not None and not 0 <= number <= MAX_PARTITION:
                raise WrongUseError(f"{place}: partition must be from 0 to {MAX_PARTITION}, found {number}")
            yield name, number, part


def _check_columns(schema: pyarrow.Schema, place: str) -> None:
    import pyarrow.types as kinds

    for name in _NAMED_COLUMNS:
        if schema.names.count(name) > 1:
            raise WrongUseError(f"{place}: column {name} appears {schema.names.count(name)} times")
    expected = {
        "topic": ("strings", _is_text),
        "partition": ("integers", kinds.is_integer),
        "isControl": ("booleans", kinds.is_boolean),
    }
    for name, (what, is_right) in expected.items():
        if name in schema.names and not is_right(schema.field(name).type):
            raise WrongUseError(f"{place}: column {name} must hold {what}, found {schema.field(name).type}")


def _is_text(kind: pyarrow.DataType) -> bool:
    import pyarrow.types as kinds

    values = kind.value_type if kinds.is_dictionary(kind) else kind
    return any((kinds.is_string(values), kinds.is_large_string(values), kinds.is_string_view(values)))


def _groups(
    batch: pyarrow.RecordBatch, column: str, *, given: Any, place: str
) -> Iterator[tuple[Any, pyarrow.RecordBatch]]:
    import pyarrow.compute as pc

    if given is not None or column not in batch.schema.names:
        yield given, batch
        return
    values = batch.column(column)
    for value in pc.unique(values).to_pylist():
        if value is None:
            raise WrongUseError(f"{place}: a row has no {column}")
        yield value, batch.filter(pc.equal(values, value))


def packed_columns(batch: pyarrow.RecordBatch, *, with_offset: bool) -> Iterator[pyarrow.RecordBatch]:
    """Yield the columns that make up a record, in pieces: the increasing offsets of one piece fit one segment."""
    import pyarrow.types as kinds

    wanted = (*_PACKED_COLUMNS, "offset") if with_offset else _PACKED_COLUMNS
    rows = batch.select([name for name in wanted if name in batch.schema.names])
    offsets = rows.column("offset") if "offset" in rows.schema.names else None
    if offsets is None or offsets.null_count or not kinds.is_integer(offsets.type):
        yield rows
        return
    numbers = offsets.to_numpy(zero_copy_only=False)
    first = 0
    while first < len(numbers):
        most = min(int(numbers[first]) + MAX_INT32, MAX_OFFSET)
        size = int(numbers[first:].searchsorted(most, side="right"))
        yield rows.slice(first, size)
        first += size
