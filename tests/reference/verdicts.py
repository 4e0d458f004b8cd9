"""What kstore and the reference say of the same bytes, in one form that can be compared.

A verdict is either the list of records or a Refused(error, position).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from kstore import _core
from kstore.compression import decompress
from kstore.config import MIB
from kstore.errors import CorruptionError, UnsupportedError
from tests.making import columns
from tests.reference import codec as reference
from tests.reference import messages as reference_messages

DEFAULT_LIMIT_BYTES = 64 * MIB


class Refused(NamedTuple):
    """Exact class name of the error and the position of the batch."""

    error: str
    position: int | None


Records = list[reference.Record]
Verdict = Records | Refused


def as_reference(record: _core.Record) -> reference.Record:
    """A kstore Record as the reference shows it: header keys as bytes."""
    return reference.Record(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        timestamp_type=int(record.timestamp_type),
        key=record.key,
        value=record.value,
        headers=tuple((key.encode("utf-8", "surrogateescape"), value) for key, value in record.headers),
        sequence=record.sequence,
        is_control=record.is_control,
    )


def kstore_verdict(read: Callable[[], Iterable[_core.Record]]) -> Verdict:
    try:
        return [as_reference(record) for record in read()]
    except (CorruptionError, UnsupportedError) as error:
        return Refused(type(error).__name__, error.position)


def reason_of(read: Callable[[], object]) -> str:
    """Why the bytes are refused, without the place: what tells rules of one error class from each other.

    What a codec's package says in parentheses is left out.
    """
    try:
        read()
    except CorruptionError as error:
        return re.sub(r" \(.*error.*\)", "", error.reason, flags=re.IGNORECASE)
    except UnsupportedError as error:
        return re.sub(r" in batch at .*\):", ":", str(error))
    raise AssertionError("nothing was refused")


def core_batch_reason(data: bytes, *, limit: int = DEFAULT_LIMIT_BYTES) -> str:
    """Why core_batch_verdict refuses the batch."""
    return reason_of(lambda: read_core_batch(data, limit=limit))


def survey_reason(data: bytes, *, limit: int = DEFAULT_LIMIT_BYTES) -> str:
    """Why survey_records, which makes no Record, refuses the batch of magic 2."""
    return reason_of(lambda: _core.survey_records(core_records(data, limit=limit)))


def column_reason(data: bytes, *, limit: int = DEFAULT_LIMIT_BYTES) -> str:
    """Why column_verdict refuses the bytes."""
    return reason_of(lambda: columns.decode_table(data, columns.Wanted(max_decompressed_bytes=limit)))


def reference_verdict(read: Callable[[], Records]) -> Verdict:
    try:
        return read()
    except reference.Refusal as refusal:
        return Refused(refusal.error, refusal.position)


def core_batch_verdict(data: bytes, *, position: int = 0, limit: int = DEFAULT_LIMIT_BYTES) -> Verdict:
    """kstore._core on the one batch that data starts with: header, CRC, records."""
    return kstore_verdict(lambda: read_core_batch(data, position=position, limit=limit))


def read_core_batch(data: bytes, *, position: int = 0, limit: int) -> list[_core.Record]:
    return list(core_records(data, position=position, limit=limit))


def core_records(data: bytes, *, position: int = 0, limit: int) -> _core.RecordIterator:
    header = _core.read_header(data, position=position, max_batch_bytes=reference.MAX_BATCH_BYTES)
    whole = data[: header.size_in_bytes]
    _core.check_crc(whole, position=position)
    return _core.iterate_records(whole, position=position, decompress=decompress, max_decompressed_bytes=limit)


def reference_batch_verdict(data: bytes, *, position: int = 0, limit: int = DEFAULT_LIMIT_BYTES) -> Verdict:
    return reference_verdict(
        lambda: reference.read_batch(data, position=position, max_decompressed_bytes=limit).records
    )


def column_verdict(
    data: bytes, wanted: columns.Wanted = columns.ALL, *, limit: int = DEFAULT_LIMIT_BYTES
) -> list[columns.Row] | Refused:
    """kstore._core.ColumnDecoder on a run of batches."""
    wanted = replace(wanted, max_decompressed_bytes=limit)
    try:
        return columns.decode_table(data, wanted).rows
    except (CorruptionError, UnsupportedError) as error:
        return Refused(type(error).__name__, error.position)


def expected_column_verdict(
    data: bytes, wanted: columns.Wanted = columns.ALL, *, limit: int = DEFAULT_LIMIT_BYTES
) -> list[columns.Row] | Refused:
    """What the reference's rules say of a run of entries whose offsets must rise, key, value or headers wanted.

    Control batches are skipped unread once their offsets fit.
    """
    rows: list[columns.Row] = []
    at = least_offset = 0
    try:
        while at < len(data):
            read = _message_rows if data[at + 16 : at + 17] in (b"\0", b"\1") else _batch_rows
            found, at, least_offset = read(data, at, wanted, least_offset=least_offset, limit=limit)
            rows += found
    except reference.Refusal as refusal:
        return Refused(refusal.error, refusal.position)
    return rows


def _batch_rows(
    data: bytes, at: int, wanted: columns.Wanted, *, least_offset: int, limit: int
) -> tuple[list[columns.Row], int, int]:
    """The rows of a record batch, where it ends, and the least offset that may follow."""
    header = reference.read_header(data, at)
    reference.check_crc(data, at, header)
    reference.check_offsets(header, position=at)
    if header.base_offset < least_offset:
        raise reference.Refusal("CorruptRecordError", "offsets go back", position=at)
    rows = []
    if not header.is_control:
        reference.check_counts(header, position=at)
        batch = reference.read_batch(data, at, max_decompressed_bytes=limit)
        rows = columns.expected_rows(batch.records, wanted)
    return rows, at + header.size, header.last_offset + 1


def _message_rows(
    data: bytes, at: int, wanted: columns.Wanted, *, least_offset: int, limit: int
) -> tuple[list[columns.Row], int, int]:
    """The rows of a message or a wrapper, record by record as each is looked at."""
    end = at + reference_messages.frame(data, at, position=at)
    rows = []
    for record in reference_messages.records_of(data[at:end], position=at, limit=limit, least_offset=least_offset):
        rows += columns.expected_rows([record], wanted)
        least_offset = record.offset + 1
    return rows, end, max(least_offset, int.from_bytes(data[at : at + 8], "big") + 1)
