"""Cases of the matrix as the Java program reads them: Recipe.java tells the same fields."""

from __future__ import annotations

import struct

from tests.making.matrix import Case
from tests.reference.codec import LOG_APPEND_TIME

HEAD = struct.Struct(">bb?qqqhi??iq")
ROW = struct.Struct(">qq")
NO_FIELD = -1


def recipe(case: Case) -> bytes:
    options = case.options
    out = [
        HEAD.pack(
            case.magic,
            case.codec,
            case.timestamp_type == LOG_APPEND_TIME,
            options.get("log_append_time_ms", NO_FIELD),
            case.base_offset,
            options.get("producer_id", NO_FIELD),
            options.get("producer_epoch", NO_FIELD),
            options.get("base_sequence", NO_FIELD),
            options.get("is_transactional", False),
            options.get("is_control", False),
            options.get("partition_leader_epoch", NO_FIELD),
            options.get("delete_horizon_ms", NO_FIELD),
        ),
        count(len(case.records)),
    ]
    for record in case.records:
        out += [ROW.pack(record.offset, record.timestamp_ms), sized(record.key), sized(record.value)]
        out.append(count(len(record.headers)))
        out += [sized(field) for header in record.headers for field in header]
    return b"".join(out)


def count(value: int) -> bytes:
    return struct.pack(">i", value)


def sized(data: bytes | None) -> bytes:
    return count(-1) if data is None else count(len(data)) + data
