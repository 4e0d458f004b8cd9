"""Columns as a producer is given them: Arrow data, or buffers. Layer 5."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kstore.record.packing import RecordColumns


def record_columns_of(columns: Any, *, timestamp_ms: int) -> Iterable[RecordColumns]:
    """Return RecordColumns as they are, or those of each record batch of Arrow data.

    Args: timestamp_ms: of all rows where there is no timestamp column.
    Raises: TypeError for anything else; ValueError as kstore.arrow.record_columns.
    """
    if isinstance(columns, RecordColumns):
        return (columns,)
    from kstore.arrow import record_columns, to_record_batches

    return (record_columns(batch, timestamp_ms=timestamp_ms) for batch in to_record_batches(columns))
