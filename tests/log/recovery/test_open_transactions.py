"""Goal: the transaction index that recovery rebuilds has the least start of the transactions that are open.
Method: transactions of a snapshot, whose entries are in the order of their producers, not of their offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.log.files.names import PartitionDirectory
from kstore.log.files.snapshots import ProducerSnapshotEntry, write_snapshot
from kstore.log.files.transaction_index import AbortedTxn, decode_aborted_txns
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.plan import OpenTransactions
from kstore.log.state.producer_append import ProducerStateBatch, TransactionMarker
from kstore.types import TopicPartition


def entry(producer_id: int, first_offset: int) -> ProducerSnapshotEntry:
    return ProducerSnapshotEntry(producer_id, 0, 0, first_offset, 0, 1, 0, first_offset)


def abort(producer_id: int, offset: int) -> ProducerStateBatch:
    marker = TransactionMarker(is_abort=True, coordinator_epoch=0, timestamp_ms=1)
    return ProducerStateBatch(
        producer_id, 0, -1, offset, offset, 1, is_transactional=True, is_control=True, marker=marker
    )


@pytest.mark.parametrize("starts", [(10, 20, 5), (20, 10, 5), (20, 5, 10), (5, 10, 20)])
def test_last_stable_offset_of_a_rebuilt_entry_is_the_least_start_of_the_open_transactions(
    tmp_path: Path, starts: tuple[int, ...]
) -> None:
    """The first of four transactions is aborted; the others stay open."""
    directory = PartitionDirectory(TopicPartition("t", 0), str(tmp_path), str(tmp_path.parent))
    entries = [entry(0, 7), *(entry(number, start) for number, start in enumerate(starts, start=1))]
    write_snapshot(str(tmp_path / f"{30:020d}.snapshot"), entries)
    context = RecoveryContext(directory, LogConfig(), LocalEnv(), 0)
    transactions = OpenTransactions.of_snapshots(context, [30], base_offset=30)
    content = transactions.aborted_of([abort(0, 30)])
    assert decode_aborted_txns(content, base_offset=30, path="") == (AbortedTxn(0, 7, 30, min(starts)),)
