"""What the Java program must report of a case, and how what Kafka wrote compares with what kstore writes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from kstore.record import MemoryRecords
from tests.making.matrix import NO_TIMESTAMP_TYPE, Case
from tests.making.messages import decompressed
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import CREATE_TIME, LOG_APPEND_TIME, Header, Record
from tests.reference.verdicts import as_reference

TYPE_NAMES = {
    NO_TIMESTAMP_TYPE: "NO_TIMESTAMP_TYPE",
    CREATE_TIME: "CREATE_TIME",
    LOG_APPEND_TIME: "LOG_APPEND_TIME",
}
MESSAGE_HEADER_BYTES = {0: 26, 1: 34}
VALUE_LENGTH_BYTES = 4
UNKNOWN = "?"

Line = dict[str, Any]


def hashed_text(data: bytes) -> str:
    """The hash of a header key; UNKNOWN for one that is not UTF-8, of which Java tells what its decoder makes of it."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return UNKNOWN
    return hashlib.sha256(data).hexdigest()[:16]


def hashed(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()[:16]


def lines_of(records: Iterable[Record]) -> list[Line]:
    """What the Java program says of records."""
    return [
        {
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "timestamp_type": TYPE_NAMES[record.timestamp_type],
            "key": hashed(record.key),
            "value": hashed(record.value),
            "headers": [[hashed_text(key), hashed(value)] for key, value in record.headers],
            "sequence": record.sequence,
        }
        for record in records
    ]


def expected_batch(case: Case, data: bytes) -> Line:
    """The header of a V2 batch as the options of the case say, not as the bytes do."""
    options = case.options
    return {
        "magic": 2,
        "base_offset": case.base_offset,
        "last_offset": case.records[-1].offset,
        "codec": case.codec,
        "batch_timestamp_type": TYPE_NAMES[case.timestamp_type],
        "max_timestamp_ms": max(record.timestamp_ms for record in case.expected),
        "producer_id": options.get("producer_id", -1),
        "producer_epoch": options.get("producer_epoch", -1),
        "base_sequence": options.get("base_sequence", -1),
        "is_transactional": options.get("is_transactional", False),
        "is_control": options.get("is_control", False),
        "partition_leader_epoch": options.get("partition_leader_epoch", -1),
        "delete_horizon_ms": options.get("delete_horizon_ms", -1),
        "size_in_bytes": len(data),
    }


def reading_problem(case: Case, data: bytes, lines: list[Line]) -> str | None:
    """The first difference between what Kafka reported of our bytes and what was written, or None."""
    if problem := records_difference(lines, case.expected):
        return problem
    sizes = [line["valid_bytes"] for line in lines if "valid_bytes" in line]
    if sizes not in ([], [len(data)]):
        return f"{sizes} of {len(data)} bytes are valid"
    if case.magic != reference.Header.magic:
        return None
    batches = [line for line in lines if "base_offset" in line]
    return difference(batches[0], expected_batch(case, data)) if len(batches) == 1 else f"{len(batches)} batches"


def records_difference(lines: list[Line], expected: list[Record]) -> str | None:
    """The first difference between the records that Kafka reported and those expected, or None."""
    if lines and "error" in lines[-1]:
        return str(lines[-1]["error"])
    records = [line for line in lines if "offset" in line]
    if len(records) != len(expected):
        return f"{len(records)} records in place of {len(expected)}"
    for found, wanted in zip(records, lines_of(expected), strict=True):
        if problem := difference(found, wanted):
            return f"record {wanted['offset']}: {problem}"
    return None


def difference(found: Line, wanted: Line) -> str | None:
    """The first field that is there and not as wanted; V0 and V1 readers have fewer fields."""
    for name, value in found.items():
        if name in wanted and not same(value, wanted[name]):
            return f"{name} {value} in place of {wanted[name]}"
    return None


def same(found: Any, wanted: Any) -> bool:
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted) or (isinstance(found, str) and wanted == UNKNOWN)


def records_problem(case: Case, data: bytes) -> str | None:
    """How kstore's reading of what Kafka wrote differs from the case, or None."""
    records = [as_reference(record) for record in MemoryRecords(data)]
    if records == case.expected:
        return None
    for found, wanted in zip(records, case.expected, strict=False):
        if found != wanted:
            return f"record {wanted.offset}: {str(found)[:200]} in place of {str(wanted)[:200]}"
    return f"{len(records)} records in place of {len(case.expected)}"


def bytes_problem(case: Case, *, ours: bytes, theirs: bytes) -> str | None:
    """How our bytes differ from Kafka's: all of them, or, compressed, the header fields and the content."""
    if case.codec == codecs.NONE:
        at = next((n for n, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), len(ours))
        return None if ours == theirs else f"byte {at} of {len(ours)} differs, Kafka wrote {len(theirs)}"
    found, wanted = opened(case, ours), opened(case, theirs)
    if found[0] != wanted[0]:
        return f"header {found[0].hex(' ')} in place of {wanted[0].hex(' ')}"
    return None if found[1] == wanted[1] else "the decompressed content differs"


def opened(case: Case, data: bytes) -> tuple[bytes, bytes]:
    """The header without what depends on the compressed bytes (sizes, CRC), and the decompressed payload."""
    limit = 1 << 26
    if case.magic == Header.magic:
        content = codecs.decompress(case.codec, data[reference.HEADER_BYTES :], limit=limit)
        return data[:8] + data[12:17] + data[reference.ATTRIBUTES_AT : reference.HEADER_BYTES], content
    start = MESSAGE_HEADER_BYTES[case.magic]
    content = decompressed(data[start:], magic=case.magic, codec=case.codec)
    return data[:8] + data[16 : start - VALUE_LENGTH_BYTES], content
