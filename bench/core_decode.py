"""kstore's compiled decoder over a segment in memory, called as in kstore/log/scan.py, and its columns as Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa

from kstore import _core
from kstore.arrow import DEFAULT_BATCH_BYTES
from kstore.compression import decompress
from kstore.config import LogConfig

Binary = Literal["copy", "view"]
BINARY_TYPES = {"copy": pa.binary(), "view": pa.binary_view()}


def columns_of(segment: memoryview, binary: Binary) -> Iterator[_core.Columns]:
    """Yield offset, timestamp, key and value in columns of the default size."""
    config = LogConfig()
    decoder = _core.ColumnDecoder(
        key=binary,
        value=binary,
        offset=True,
        timestamp=True,
        batch_bytes=DEFAULT_BATCH_BYTES,
        max_batch_bytes=config.max_batch_bytes,
        max_decompressed_bytes=config.max_decompressed_bytes,
        decompress=decompress,
    )
    decoder.start_file(position=0, end_position=len(segment))
    while (progress := decoder.run()) != "done":
        if progress == "more":
            size = max(config.read_chunk_bytes, decoder.needed)
            decoder.feed(segment[decoder.position : decoder.position + size], decoder.position)
        else:
            yield decoder.take()
    yield decoder.take()


def record_batch_of(columns: _core.Columns, binary: Binary) -> pa.RecordBatch:
    """Return the columns as an Arrow record batch, without a copy."""
    timestamp = pa.timestamp("us", "UTC")
    arrays = {
        "offset": pa.Array.from_buffers(pa.int64(), columns.row_count, [None, pa.py_buffer(columns.offset)]),
        "timestamp": pa.Array.from_buffers(timestamp, columns.row_count, [None, pa.py_buffer(columns.timestamp)]),
    }
    for name, column in {"key": columns.key, "value": columns.value}.items():
        if column is None:
            raise ValueError(f"the decoder was not asked for {name}")
        null_count, validity, index, data = column
        buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(index), *map(pa.py_buffer, data)]
        arrays[name] = pa.Array.from_buffers(BINARY_TYPES[binary], columns.row_count, buffers, null_count)
    return pa.RecordBatch.from_pydict(arrays)
