"""Goal: a log answers a Produce request made by hand with the code of a broker, or the table says why it does not.
Method: the table of making/hand_made.py, whose codes a broker gave; each case is appended to a log of its own."""

from __future__ import annotations

from pathlib import Path

import kstore
from kstore import LogConfig, MemoryRecords
from kstore.errors import KStoreError
from tests.making.collecting import over
from tests.making.hand_made import AFTER_MAX_MS, CASES, Produced

CONFIGS = {
    "plain": LogConfig(message_timestamp_after_max_ms=AFTER_MAX_MS),
    "compacted": LogConfig(message_timestamp_after_max_ms=AFTER_MAX_MS, cleanup_policy="compact"),
    "append-time": LogConfig(message_timestamp_type="LogAppendTime"),
    "lz4": LogConfig(message_timestamp_after_max_ms=AFTER_MAX_MS, compression_type="lz4"),
    "small-segments": LogConfig(segment_bytes=2**20, max_message_bytes=2**22),
}


def code_of(case: Produced, directory: Path) -> int | None:
    """Return the code of the append, NONE if it is accepted; nothing of a refused one is in the log."""
    with kstore.open_log(directory, "a", config=CONFIGS[case.topic]) as log:
        for records in case.before:
            log.append(MemoryRecords(records))
        end = log.log_end_offset
        try:
            log.append(MemoryRecords(case.records))
        except KStoreError as error:
            assert log.log_end_offset == end
            return error.kafka_code
    return 0


@over("case", CASES, by=lambda _: "batches", label=lambda case: case.name)
def test_code_is_the_brokers_or_the_table_says_why_not(case: Produced, tmp_path: Path) -> None:
    assert code_of(case, tmp_path / "t-0") == case.expected
    assert bool(case.why) == (case.expected != case.broker)
