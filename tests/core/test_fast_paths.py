"""Goal: the fast loops over plain records follow every rule of the loops that read any record.
Method: each case once at the end of its chunk, which the slow loop reads, and once with a batch after it, which the
fast loop reads; both against the reference."""

from __future__ import annotations

from pathlib import Path

from kstore.config import LogConfig
from kstore.store.opening import open_log
from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS, Layout, write_partition
from tests.reference import codec as reference
from tests.reference.codec import Header, encode_varint
from tests.reference.verdicts import Refused, column_verdict, expected_column_verdict

FOLLOWING = builders.batch(100, 3, value_bytes=40)
# Attributes, timestamp delta, offset delta, key size, key, value size, value, header count.
RECORD = bytes.fromhex("00 02 02 02 6b 04 7676 00")


def batch_of(record: bytes) -> bytes:
    """A batch of a good record and this one, with timestamps of the fast loop."""
    body = b"\0\0\0\x01\x01\0"
    times = {"base_timestamp_ms": FIRST_TIMESTAMP_MS, "max_timestamp_ms": FIRST_TIMESTAMP_MS + 63}
    records = b"".join(encode_varint(len(part)) + part for part in (body, record))
    return reference.seal(Header(record_count=2, last_offset_delta=1, **times), records)


RECORDS = {
    f"byte {at} is {value:#04x}": RECORD[:at] + bytes([value]) + RECORD[at + 1 :]
    for at in range(len(RECORD))
    for value in range(256)
} | {
    "key size -2 without a key": bytes.fromhex("00 02 02 03 04 7676 00"),
    "key size -8192": bytes.fromhex("00 02 02 ff7f 04 7676 00"),
    "value size -2 without a value": bytes.fromhex("00 02 02 02 6b 03 00"),
    "value size -8192": bytes.fromhex("00 02 02 02 6b ff7f 00"),
    "both sizes -2": bytes.fromhex("00 02 02 03 03 00"),
    "no key, no value": bytes.fromhex("00 02 02 01 01 00"),
}


def test_each_record_is_read_or_refused_alike_by_the_fast_and_the_slow_loop() -> None:
    for name, record in RECORDS.items():
        data = batch_of(record)
        slow, expected = column_verdict(data), expected_column_verdict(data)
        fast = column_verdict(data + FOLLOWING)
        assert slow == expected, name
        if isinstance(expected, Refused):
            assert fast == expected, name
        else:
            assert isinstance(fast, list), name
            assert fast[: len(expected)] == expected, name


def test_search_by_time_returns_a_record_at_exactly_the_start_offset(tmp_path: Path) -> None:
    segment = builders.batches(0, 6, records_per_batch=8, value_bytes=200)
    directory = write_partition(tmp_path, [segment], layout=Layout(index_interval_bytes=1000))
    with open_log(directory, config=LogConfig(time_index_proof_bytes=0)) as log:
        [only] = log.segments
        # The fast loop runs once an entry is confirmed and the batch after it was checked.
        for _ in range(3):
            for start_offset in range(48):
                for time in (FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS + start_offset, FIRST_TIMESTAMP_MS + 20):
                    found = only.search_timestamp(time, start_offset=start_offset)
                    offset = max(start_offset, time - FIRST_TIMESTAMP_MS)
                    assert found == (offset, FIRST_TIMESTAMP_MS + offset)
