"""Goal: damage that settling transactions meets is an error with its place.
Method: partition directories whose control batches the builders wrote wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import kstore
from kstore.log.state.transactions import Settled
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
