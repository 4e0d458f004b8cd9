"""Records, batches, times and damaged ranges as JSON and as text.

JSON is formatted directly as one string per record: a dict per record and a general encoder cost several times as
much.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from binascii import b2a_base64
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kstore._core import RecordLines, lines_of_records
from kstore.cli.arguments import EPOCH
from kstore.cli.output import Column, Part, printable
from kstore.compression import codec_name
from kstore.config import MIB
from kstore.env import split_path
from kstore.errors import InvalidRecordError, KStoreError, MemoryLimitError
from kstore.record.control import UnknownControlRecord, decode_control_record
from kstore.serializers import plain_number
from kstore.types import MAGIC_V2, MAX_OFFSET, ControlRecordType, TimestampType
from kstore.wire.protocol import TaggedField

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kstore._core import BatchHeader, Record, RecordIterator
    from kstore.log.damage import Damage, SuspectedLoss
    from kstore.record.batches import RecordBatch
    from kstore.types import TopicPartition

JSON_TEXT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
TIMESTAMP_TYPE_LABELS = {int(kind): kind.label for kind in TimestampType}
JSON_BOOL = ("false", "true")
# Bounds on one JSON text built at once, and on Records held at once: a compressed batch of a few KiB may hold
# millions of records.
MOST_TEXT_BYTES = 32 * MIB
MOST_RECORDS = 65536
MOST_RECORDS_BYTES = 32 * MIB
MIN_INT64 = -MAX_OFFSET - 1
NULL_TEXT, EMPTY_TEXT = "<null>", "<empty>"
CONTROL_TYPES = {int(kind): kind.name for kind in ControlRecordType if kind is not ControlRecordType.UNKNOWN}
DAMAGE_COLUMNS = (
    Column("partition"),
    Column("file"),
    Column("position", is_number=True),
    Column("size", is_number=True),
    Column("reason", wraps=True),
)

LOSS_COLUMNS = (
    Column("suspected loss"),
    Column("offsets"),
    Column("file"),
    Column("certainty"),
    Column("evidence", wraps=True),
)


def control_type(key: bytes | None) -> str:
    """Return the type in a control record's key, which is version int16, type int16 (Kafka: ControlRecordType)."""
    if key is None or len(key) < 4 or int.from_bytes(key[:2], "big", signed=True) < 0:
        return "UNKNOWN(no type)"
    number = int.from_bytes(key[2:4], "big", signed=True)
    return CONTROL_TYPES.get(number, f"UNKNOWN({number})")


def control_fields(key: bytes | None, value: bytes | None) -> str:
    """Return the JSON fields of a control record's value, with `controlError` if it can't be decoded."""
    try:
        content = control_content(key, value, raises=True)
    except (InvalidRecordError, MemoryLimitError) as error:
        return f'"controlValue":null,"controlError":{JSON_TEXT(str(error))}'
    return f'"controlValue":{content or "null"}'


def control_content(key: bytes | None, value: bytes | None, *, raises: bool = False) -> str | None:
    """Return a control record's value as JSON, None for an unknown type or version.

    Raises: InvalidRecordError, MemoryLimitError if it can't be decoded, with `raises`; else None is returned.
    """
    try:
        decoded = decode_control_record(key, value)
    except (InvalidRecordError, MemoryLimitError):
        if raises:
            raise
        return None
    return None if isinstance(decoded, UnknownControlRecord) else JSON_TEXT(plain_value(decoded))


def plain_value(value: object) -> object:
    """Return a value in a form that JSON can hold.

    Dataclasses become objects with Kafka's names; bytes and UUIDs base64; NaN and infinities strings.
    """
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name not in ("control_type", "version")]
        shown = {name: getattr(value, name) for name in names}
        version = {"version": value.version} if hasattr(value, "version") else {}
        return version | {
            kafka_name(name): plain_value(item)
            for name, item in shown.items()
            if item is not None and not (name in ("tagged_fields", "rest") and not item)
        }
    if isinstance(value, TaggedField):
        return {"tag": value.tag, "data": plain_value(value.data)}
    if isinstance(value, (list, tuple)):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {name: plain_value(item) for name, item in value.items()}
    if isinstance(value, UUID):
        return urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")
    if isinstance(value, bytes):
        return b2a_base64(value, newline=False).decode("ascii")
    if isinstance(value, float):
        return plain_number(value)
    return header_key_text(value) if isinstance(value, str) else value


def kafka_name(name: str) -> str:
    """Return the name of a field in Kafka's JSON: kraft_version -> kRaftVersion."""
    first, *others = name.removesuffix("_ms").replace("kraft", "k_raft").split("_")
    return first + "".join(other.capitalize() for other in others)


def header_key_text(key: str) -> str:
    """Return a header key with U+FFFD for bytes that are not UTF-8."""
    return key if key.isascii() else key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def json_bytes(data: bytes | None) -> str:
    """Return bytes as a base64 JSON string, or null."""
    return "null" if data is None else f'"{b2a_base64(data, newline=False).decode("ascii")}"'


def json_headers(headers: Iterable[tuple[str, bytes | None]]) -> str:
    """Return headers as a JSON array of [key, base64 or null]."""
    items = [f"[{JSON_TEXT(header_key_text(key))},{json_bytes(value)}]" for key, value in headers]
    return f"[{','.join(items)}]"


def json_text(data: bytes | None) -> str:
    """Return bytes as a JSON string, null for null and for what is not UTF-8."""
    try:
        return "null" if data is None else JSON_TEXT(data.decode("utf-8"))
    except UnicodeDecodeError:
        return "null"


def json_headers_text(headers: Iterable[tuple[str, bytes | None]]) -> str:
    """Return headers as a JSON array of [key, text or null]."""
    return f"[{','.join(f'[{JSON_TEXT(header_key_text(key))},{json_text(value)}]' for key, value in headers)}]"


def json_records(
    records: Sequence[Record],
    header: BatchHeader,
    *,
    timestamp_type: int,
    prefix: str = "",
    more: Callable[[int], str] | None = None,
) -> list[str]:
    """Return one JSON object per record of a batch, with the fields that JSON_STEPS has.

    Args: prefix: the first fields of each object, ending in a comma. timestamp_type: of all the records. more: returns
        further fields of the record at an index, each after a comma; not called for control records.
    """
    opening = f'{{{prefix}"offset":'
    middle = f',"timestampType":"{TIMESTAMP_TYPE_LABELS[timestamp_type]}","key":'
    producer = f'"producerId":{header.producer_id},"producerEpoch":{header.producer_epoch},"sequence":'
    closing = f',"isTransactional":{JSON_BOOL[header.is_transactional]},"leaderEpoch":{header.partition_leader_epoch}}}'
    lines = []
    for row, record in enumerate(records):
        key, value = json_text(record.key), json_text(record.value)
        if header.is_control:
            key = value = "null"
            others = f',"controlType":"{control_type(record.key)}",{control_fields(record.key, record.value)}'
        else:
            others = "" if more is None else more(row)
        lines.append(
            f'{opening}{record.offset},"timestamp":{record.timestamp_ms}{middle}{json_bytes(record.key)},'
            f'"value":{json_bytes(record.value)},"headers":{json_headers(record.headers) if record.headers else "[]"}'
            f'{others},"keyText":{key},"valueText":{value},"headersText":{json_headers_text(record.headers)},'
            f"{producer}{record.sequence}{closing}"
        )
    return lines


# What json_records makes of a record of a batch of magic 2, no control batch, after its prefix.
JSON_STEPS: tuple[bytes | str, ...] = (
    b'"offset":',
    "offset",
    b',"timestamp":',
    "timestamp",
    b',"timestampType":"',
    "timestamp_type",
    b'","key":',
    "key_base64",
    b',"value":',
    "value_base64",
    b',"headers":',
    "headers_base64",
    b',"keyText":',
    "key_json",
    b',"valueText":',
    "value_json",
    b',"headersText":',
    "headers_json",
    b',"producerId":',
    "producer_id",
    b',"producerEpoch":',
    "producer_epoch",
    b',"sequence":',
    "sequence",
    b',"isTransactional":',
    "is_transactional",
    b',"leaderEpoch":',
    "leader_epoch",
)


class TextOfBatch(NamedTuple):
    """The text of records of a batch, and how many they are."""

    data: bytes
    record_count: int


def text_of_batch(
    batch: RecordBatch,
    lines: RecordLines,
    *,
    start_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    since_ms: int | None = None,
    until_ms: int | None = None,
    limit: int | None = None,
) -> TextOfBatch | None:
    """Return the text of the records of a batch that are in a range, in one call to the core: the fast path.

    The CRC is not checked.
    Returns: None if the slow path is needed: magic 0 or 1, a control batch, an invalid record, or text that might
        exceed MOST_TEXT_BYTES.
    """
    # The largest time as a bound is none to the core.
    if batch.magic < MAGIC_V2 or batch.is_control or until_ms == MAX_OFFSET:
        return None
    try:
        records = batch.records(verify=False)
    except KStoreError:
        return None
    found = lines_of_records(
        records,
        lines,
        start_offset=start_offset,
        end_offset=end_offset,
        since_ms=MIN_INT64 if since_ms is None else since_ms,
        until_ms=MAX_OFFSET if until_ms is None else until_ms,
        limit=-1 if limit is None else limit,
        most_bytes=MOST_TEXT_BYTES,
    )
    return None if found is None else TextOfBatch(*found)


def parts_of(records: RecordIterator) -> Iterator[list[Record]]:
    """Yield the Records in non-empty lists of at most MOST_RECORDS records and about MOST_RECORDS_BYTES bytes."""
    while part := records.take(most_records=MOST_RECORDS, most_bytes=MOST_RECORDS_BYTES):
        yield part


def json_batch(
    header: BatchHeader,
    *,
    magic: int,
    is_valid: bool,
    base_offset: int | None,
    record_count: int | None,
    prefix: str = "",
) -> str:
    """Return the JSON object of a batch, without its closing brace so that records can follow."""
    return (
        f'{{{prefix}"position":{header.position},"size":{header.size_in_bytes},"magic":{magic},'
        f'"baseOffset":{json_number(base_offset)},"lastOffset":{header.last_offset},"count":{json_number(record_count)},'
        f'"codec":"{codec_name(header.codec)}","timestampType":"{TIMESTAMP_TYPE_LABELS[header.timestamp_type]}",'
        f'"baseTimestamp":{header.base_timestamp_ms},"maxTimestamp":{header.max_timestamp_ms},'
        f'"producerId":{header.producer_id},"producerEpoch":{header.producer_epoch},'
        f'"baseSequence":{header.base_sequence},"isTransactional":{JSON_BOOL[header.is_transactional]},'
        f'"isControl":{JSON_BOOL[header.is_control]},"leaderEpoch":{header.partition_leader_epoch},'
        f'"crc":{header.crc},"valid":{JSON_BOOL[is_valid]}'
    )


def json_number(number: int | None) -> str:
    """Return a number in JSON, null for None."""
    return "null" if number is None else str(number)


def time_text(timestamp_ms: int | None) -> str:
    """Return the UTC time in ISO-8601 with ms, the number of ms outside the years 1 to 9999, or `-` for None and -1."""
    if timestamp_ms is None or timestamp_ms == -1:
        return "-"
    try:
        moment = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def bytes_text(data: bytes | None) -> str:
    """Return bytes as readable text: UTF-8 with escapes for the rest, `<null>` for None, `<empty>` for no bytes."""
    return NULL_TEXT if data is None else escaped_text(data.decode("utf-8", "surrogateescape"))


def escaped_text(text: str) -> str:
    """Return text with escapes for what is not printable and for the backslash, `<empty>` for none.

    The texts `<null>` and `<empty>` themselves get a backslash, which no other text begins with alone.
    """
    if not text:
        return EMPTY_TEXT
    if text in (NULL_TEXT, EMPTY_TEXT):
        return "\\" + text
    return printable(text.replace("\\", "\\\\"))


def hex_text(data: bytes | None) -> str:
    """Return bytes in hexadecimal digits, `<null>` for None, `<empty>` for no bytes."""
    return NULL_TEXT if data is None else data.hex() or EMPTY_TEXT


def record_parts(
    record: Record,
    *,
    prefix: str = "",
    is_control: bool = False,
    texts: tuple[str | None, str | None] = (None, None),
    shown: Callable[[bytes | None], str] = bytes_text,
) -> list[Part]:
    """Return a record as one tab-separated line: offset, time, key, value, then headers or the control type and value.

    Args: texts: decoded key and value, each shown in place of the bytes if not None; shown: bytes as text.
    """
    key, value = texts
    parts = [
        Part(f"{prefix}{record.offset}", "bold"),
        Part(f"\t{time_text(record.timestamp_ms)}", "dim"),
        Part(f"\t{shown(record.key) if key is None else printable(key)}", "cyan" if record.key else "dim"),
        Part(f"\t{shown(record.value) if value is None else printable(value)}", "" if record.value else "dim"),
    ]
    if is_control:
        parts.append(Part(f"\t{control_type(record.key)}", "magenta"))
        content = control_content(record.key, record.value)
        parts += [] if content is None else [Part(f"\t{printable(content)}", "dim")]
    elif record.headers:
        headers = ", ".join(f"{escaped_text(key) if key else ''}={shown(value)}" for key, value in record.headers)
        parts.append(Part(f"\t{headers}", "green"))
    return parts


# What record_parts makes of a record of a batch of magic 2, no control batch, after its prefix.
TEXT_STEPS: tuple[bytes | str, ...] = (
    "offset",
    b"\t",
    "time",
    b"\t",
    "key_text",
    b"\t",
    "value_text",
    "headers_text",
)
HEX_STEPS: tuple[bytes | str, ...] = tuple(
    step.replace("_text", "_hex") if isinstance(step, str) else step for step in TEXT_STEPS
)


def damage_objects(damage: Iterable[Damage]) -> list[dict[str, object]]:
    """Return the JSON object of each range."""
    return [
        {"file": split_path(path)[1], "position": position, "size": size_in_bytes, "reason": reason}
        for path, position, size_in_bytes, reason in damage
    ]


def damage_rows(topic_partition: TopicPartition, damage: Iterable[Damage]) -> list[list[str]]:
    """Return the table cells of each range, in the order of DAMAGE_COLUMNS."""
    return [
        [str(topic_partition), split_path(path)[1], str(position), str(size_in_bytes), reason]
        for path, position, size_in_bytes, reason in damage
    ]


def range_text(first_offset: int, end_offset: int | None) -> str:
    """Return offsets as FIRST-LAST, FIRST-? if the last one is not known, or `none`."""
    if end_offset is None:
        return f"{first_offset}-?"
    return f"{first_offset}-{end_offset - 1}" if end_offset > first_offset else "none"


def loss_objects(losses: Iterable[SuspectedLoss]) -> list[dict[str, object]]:
    """Return the JSON object of each suspected loss."""
    return [
        {
            "first_offset": loss.first_offset,
            "last_offset": loss.last_offset,
            "file": split_path(loss.path)[1],
            "is_proven": loss.is_proven,
            "evidence": loss.evidence,
        }
        for loss in losses
    ]


def loss_rows(losses: Iterable[SuspectedLoss]) -> list[list[str]]:
    """Return the table cells of each suspected loss, in the order of LOSS_COLUMNS."""
    return [
        [
            str(loss.topic_partition),
            range_text(loss.first_offset, loss.end_offset),
            split_path(loss.path)[1],
            "proven" if loss.is_proven else "likely",
            loss.evidence,
        ]
        for loss in losses
    ]


def loss_text(loss: SuspectedLoss) -> str:
    """Return a suspected loss as one line."""
    offsets = range_text(loss.first_offset, loss.end_offset)
    certainty = "proven" if loss.is_proven else "likely"
    return f"{certainty} loss of offsets {offsets} of {loss.topic_partition}, by {loss.path}: {loss.evidence}"


def likely_text(losses: Sequence[SuspectedLoss]) -> str:
    """Return losses that are likely as one line, which names the first of them."""
    others = f"; {len(losses) - 1} more are likely" if len(losses) > 1 else ""
    return loss_text(losses[0]) + others
