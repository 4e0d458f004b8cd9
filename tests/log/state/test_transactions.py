"""Goal: damage that settling transactions meets is an error with its place.
Method: partition directories whose control batches the builders wrote wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import kstore
from kstore.config import LogConfig
from kstore.log.state.transactions import NOTHING_SETTLED, Settled, settle_transactions
from kstore.types import MAX_OFFSET
from tests.making import batches as builders
from tests.reference.codec import write_batch


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00" * 1000])
def test_control_record_without_a_type_is_told_with_its_place(tmp_path: Path, key: bytes | None) -> None:
    before = builders.batch(0, 3)
    marker = write_batch([builders.record(3, b"", key)], is_control=True, is_transactional=True, producer_id=5)
    path = builders.write_partition(tmp_path, [[before, marker]])
    with (
        kstore.open_log(path) as log,
        pytest.raises(kstore.InvalidRecordError, match="bad control record key at offset 3") as caught,
    ):
        log.transactions()
    error = caught.value
    assert error.path is not None
    assert error.path.endswith(".log")
    assert (error.position, error.base_offset, error.found) == (len(before), 3, None if key is None else key[:4])
    assert len(str(error)) < 400 + len(error.path)


def test_last_stable_offset_is_the_least_start_of_the_open_transactions_in_whatever_order_they_are() -> None:
    for opened in (((1, 20), (2, 10)), ((1, 10), (2, 20))):
        found = Settled(open=opened).transactions(log_start_offset=0, log_end_offset=50)
        assert found.last_stable_offset == 10


def test_the_first_batch_of_a_transaction_or_marker_is_remembered_when_a_walk_goes_on(tmp_path: Path) -> None:
    plain, more = builders.batch(0, 3), builders.batch(3, 2)
    marker = write_batch(
        [builders.record(5, b"", b"\x00\x00\x00\x01")], is_control=True, is_transactional=True, producer_id=5
    )
    data = write_batch([builders.record(6, b"v")], is_transactional=True, producer_id=5)
    path = builders.write_partition(tmp_path, [[plain], [more, marker, data]])
    with kstore.open_log(path) as log:
        first = settle_transactions(log.segments[:1], after=NOTHING_SETTLED, config=LogConfig())
        assert first.transactional_from == MAX_OFFSET
        rest = settle_transactions(log.segments, after=first, config=LogConfig())
        assert rest.transactional_from == 5
        assert settle_transactions(log.segments, after=rest, config=LogConfig()) == rest
        assert log._transactional_from() == 5
    with kstore.open_log(builders.write_partition(tmp_path / "plain", [[plain], [more]])) as log:
        assert log._transactional_from() == log.log_end_offset == 5
