"""Goal: an append with expected_key_offset is written only if that is where the newest record of its key is.
Method: small logs that get records by every way in, and lose them by truncation, compaction and aborts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kstore
from kstore import LogConfig, Record
from kstore.errors import LogClosedError, LogLockedError, MemoryLimitError, UnexpectedAppendOffsetError
from kstore.log.following.newest import LEAST_MAP_BYTES
from kstore.log.write.writable_log import WritableLog
from kstore.record import ControlRecordType, EndTransactionMarker
from kstore.record.builder import with_end_transaction_marker, with_records, with_transactional_records

CONFIG = LogConfig(
    segment_bytes=4000,
    segment_index_bytes=4096,
    index_interval_bytes=200,
    cleanup_policy="compact",
    file_delete_delay_ms=0,
    cleaner_dedupe_buffer_bytes=LEAST_MAP_BYTES,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    with kstore.open_log(tmp_path / "t-0", "a", CONFIG) as opened:
        yield opened


def of(key: str, value: str | None = "v") -> Record:
    return Record(timestamp_ms=1, key=key.encode(), value=None if value is None else value.encode())


def refused(log: WritableLog, key: str, expected: int) -> int | None:
    """Return the offset that an append of the key found in place of the expected one."""
    before = log.log_end_offset
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        log.append(of(key), expected_key_offset=expected)
    assert log.log_end_offset == before
    assert (caught.value.key, caught.value.expected) == (key.encode(), expected)
    return caught.value.found


def begin(log: WritableLog, key: str) -> None:
    log.append_as_follower(
        with_transactional_records(
            [of(key)], producer_id=7, producer_epoch=0, base_sequence=0, base_offset=log.log_end_offset
        )
    )


def end(log: WritableLog, how: ControlRecordType) -> None:
    marker = EndTransactionMarker(control_type=how, coordinator_epoch=0)
    log.append_as_follower(
        with_end_transaction_marker(marker, offset=log.log_end_offset, timestamp_ms=1, producer_id=7, producer_epoch=0)
    )


def test_an_append_that_expects_another_record_of_its_key_writes_nothing(log):
    assert log.append(of("a"), expected_key_offset=-1).base_offset == 0
    with pytest.raises(
        UnexpectedAppendOffsetError, match=r"newest record of the key .*: expected none, found offset 0"
    ):
        log.append(of("a"), expected_key_offset=-1)
    log.append([of("b"), of("b")], expected_key_offset=-1)
    assert log.append(of("a"), expected_key_offset=0).base_offset == 3
    assert refused(log, "a", 0) == 3
    assert refused(log, "b", 1) == 2
    assert refused(log, "c", 0) == -1
    assert [record.key for record in log] == [b"a", b"b", b"b", b"a"]


def test_records_that_came_by_other_ways_count(log):
    log.append(of("a"), expected_key_offset=-1)
    log.append_batches([with_records([of("a")])])
    assert refused(log, "a", 0) == 1
    log.append_as_follower(with_records([of("a")], base_offset=5))
    assert refused(log, "a", 1) == 5


def test_a_key_that_was_deleted_has_no_record(log):
    log.append([of("a"), of("a", None)])
    assert refused(log, "a", 1) == -1
    assert log.append(of("a"), expected_key_offset=-1).base_offset == 2


def test_records_of_undecided_transactions_count_and_those_of_aborted_ones_do_not(log):
    log.append([of("a"), of("b")])
    begin(log, "a")
    log.append(of("b"))
    assert refused(log, "a", 0) == 2
    assert refused(log, "b", 1) == 3
    log.append(of("c"), expected_key_offset=-1)
    assert refused(log, "c", -1) == 4
    end(log, ControlRecordType.ABORT)
    assert refused(log, "a", 2) == 0
    assert log.append(of("a"), expected_key_offset=0).base_offset == 6
    begin(log, "a")
    end(log, ControlRecordType.COMMIT)
    assert refused(log, "a", 6) == 7


def test_a_truncation_and_a_compaction_are_followed(log):
    for _ in range(200):
        log.append(of("a", "v" * 50))
        log.append(of("b", "v" * 50))
    assert refused(log, "a", -1) == 398
    log.truncate_to(300)
    assert refused(log, "a", 398) == 298
    log.roll()
    assert log.compact(is_forced=True).rounds
    assert refused(log, "a", -1) == 298
    log.delete_records(299)
    assert refused(log, "a", 298) == -1
    assert log.append(of("b"), expected_key_offset=299).base_offset == 300


def test_a_log_that_is_opened_again_knows_its_keys(tmp_path):
    for expected in (-1, 0, 1):
        with kstore.open_log(tmp_path / "t-0", "a", CONFIG) as opened:
            assert opened.append(of("a"), expected_key_offset=expected).base_offset == expected + 1


def test_of_threads_that_write_one_key_each_sees_the_one_before(log):
    def count_up(thread: int) -> None:
        expected, done = -1, 0
        while done < 25:
            try:
                number = 0 if expected < 0 else int(log[expected].value)
                expected = log.append(of("n", str(number + 1)), expected_key_offset=expected).last_offset
                done += 1
            except UnexpectedAppendOffsetError as error:
                expected = error.found
            log.append(of(f"other {thread}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count_up, range(4)))
    assert [int(record.value) for record in log if record.key == b"n"] == list(range(1, 101))


def test_more_keys_than_fit_the_memory_are_refused_until_there_is_more(log):
    for start in range(0, 5000, 50):
        log.append([of(f"key {number}") for number in range(start, start + 50)])
    with pytest.raises(MemoryLimitError, match="cleaner_dedupe_buffer_bytes=65536") as caught:
        log.append(of("a"), expected_key_offset=-1)
    assert caught.value.option == "cleaner_dedupe_buffer_bytes"
    assert log.log_end_offset == 5000
    log.update_config(LogConfig(cleaner_dedupe_buffer_bytes=caught.value.found * 8))
    log.append(of("a"), expected_key_offset=-1)
    assert refused(log, "key 4999", 0) == 4999


@pytest.mark.parametrize(
    ("records", "error", "message"),
    [
        ([of("a"), of("b")], ValueError, "records of one key, got 2 keys in 2 records"),
        ([], ValueError, "records of one key, got 0 keys in 0 records"),
        ([of("a"), Record(value=b"v")], ValueError, "records with a key, record 1 has none"),
        ([of("a"), b"b"], TypeError, "takes Records, got bytes as record 1"),
        (with_records([of("a")]), TypeError, "takes Records, got MemoryRecords"),
        (7, TypeError, "takes Records, got int"),
    ],
)
def test_a_key_can_be_expected_of_records_of_one_key_only(log, records, error, message):
    with pytest.raises(error, match=message):
        log.append(records, expected_key_offset=-1)
    with pytest.raises(ValueError, match="expected_key_offset must be from -1 to"):
        log.append(of("a"), expected_key_offset=-2)
    assert log.log_end_offset == 0


def test_a_log_that_was_closed_refuses_and_frees_the_map(log):
    log.append(of("a"), expected_key_offset=-1)
    log.close()
    with pytest.raises(LogClosedError):
        log.append(of("a"), expected_key_offset=0)


def test_a_child_of_a_fork_refuses(log):
    import os

    log.append(of("a"), expected_key_offset=-1)
    child = os.fork()
    if child == 0:
        try:
            log.append(of("a"), expected_key_offset=0)
        except LogLockedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


# A step of a history: how, a key, and what is expected (an index into what is plausible).
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "expect", "truncate", "compact", "roll"]),
        st.sampled_from("abc"),
        st.integers(0, 3),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps=_STEPS)
def test_the_newest_record_of_a_key_is_that_of_a_pass_over_the_log(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("keys") / "t-0"
    with kstore.open_log(path, "a", CONFIG) as log:
        for how, key, number in steps:
            newest = {record.key: record for record in log}
            last = newest.get(key.encode())
            found = -1 if last is None or last.value is None else last.offset
            if how == "put":
                log.append([of(key)] * (number + 1))
            elif how == "delete":
                log.append(of(key, None))
            elif how == "truncate":
                log.truncate_to(max(log.log_start_offset, log.log_end_offset - number))
            elif how == "compact":
                log.compact(is_forced=True)
            elif how == "roll":
                log.roll()
            elif number == 0:
                assert refused(log, key, found + 1) == found
            else:
                log.append(of(key), expected_key_offset=found)
