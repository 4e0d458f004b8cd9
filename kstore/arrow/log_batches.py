"""What makes record batches of the ranges of one log, for Log.to_arrow_batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from kstore.arrow.columns import DEFAULT_COLUMNS
from kstore.arrow.decoding import record_batches
from kstore.config import LogConfig
from kstore.env import StrPath
from kstore.log.damage import OnError
from kstore.log.files.names import PartitionDirectory
from kstore.log.plan import ScanRange

if TYPE_CHECKING:
    from kstore.values.formats import ValueFormat
    from kstore.values.providers import SchemaSource
    from kstore.values.registry import SchemaRegistry
    from kstore.values.typed import ValueMode

_Decode: TypeAlias = Callable[[Iterable[ScanRange]], Iterator[pa.RecordBatch]]


def decoder_of_log(
    directory: PartitionDirectory,
    *,
    columns: Sequence[str] | None,
    config: LogConfig,
    on_error: OnError,
    value: ValueFormat | str | None = None,
    key: ValueFormat | str | None = None,
    schema: SchemaSource | None = None,
    schemas: StrPath | SchemaRegistry | None = None,
    mode: ValueMode = "PERMISSIVE",
    flatten: bool = False,
    **options: Any,
) -> _Decode:
    """Return what decodes ranges of a log, with types for keys and values if they have a format.

    Args: value, key, schema, schemas, mode, flatten: as of kstore.scan; the others: as of record_batches.
    Raises: as kstore.scan for these.
    """
    decode = partial(record_batches, config=config, on_error=on_error, **options)
    if value is key is schema is schemas is None:
        return partial(decode, columns=columns)
    from kstore.values.formats import Partitions, formats_of, text_columns
    from kstore.values.typed import typed_rows

    formats = formats_of(value=value, key=key, schema=schema, schemas=schemas)
    if not formats:
        return partial(decode, columns=columns)
    partitions = Partitions.of([directory], on_error=on_error)
    typed = typed_rows(formats, partitions, names=columns, default=DEFAULT_COLUMNS, mode=mode, flatten=flatten)
    in_bytes = partial(decode, columns=typed.base_columns, strings=text_columns(formats))
    if typed.reads_views:
        in_bytes = partial(in_bytes, binary="view")
    return lambda ranges: typed.batches(in_bytes(ranges), most_bytes=config.max_decompressed_bytes)
