"""Goal: aborted transactions are kept, answered as Kafka answers them, and written whole whatever the disk does.
Method: real files; entries packed by struct; os calls made to fail once."""

from __future__ import annotations

import errno
import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from kstore.env import files as env_module
from kstore.errors import CorruptIndexError, LogClosedError, StorageError
from kstore.log.files.transaction_index import AbortedTxn, TransactionIndexFile, decode_aborted_txns
from tests.fakes.disk import SimulatedDisk

BASE = 100
TXNS = (AbortedTxn(7, 90, 110, 105), AbortedTxn(8, 105, 120, 121), AbortedTxn(7, 130, 140, 141))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000100.txnindex"


def opened(path: Path) -> TransactionIndexFile:
    return TransactionIndexFile.open(path, base_offset=BASE)


def filled(path: Path) -> TransactionIndexFile:
    index = opened(path)
    for txn in TXNS:
        index.append(txn)
    return index


def packed(*txns: AbortedTxn, version: int = 0) -> bytes:
    return b"".join(struct.pack(">hqqqq", version, *txn) for txn in txns)


def test_file_is_made_with_the_first_transaction(path: Path) -> None:
    index = opened(path)
    assert (index.last_offset, index.entries) == (-1, ())
    index.flush()
    index.truncate_to(0)
    assert not path.exists()
    index.append(TXNS[0])
    assert path.read_bytes() == packed(TXNS[0])
    index.close()


def test_transactions_are_read_back(path: Path) -> None:
    filled(path).close()
    assert path.read_bytes() == packed(*TXNS)
    index = opened(path)
    assert (index.entries, index.last_offset, index.size_in_bytes) == (TXNS, 140, 102)
    index.append(AbortedTxn(9, 141, 150, 151))
    index.close()
    assert opened(path).last_offset == 150


@pytest.mark.parametrize(("txn", "least"), [(AbortedTxn(1, 2, 99, 3), 100), (AbortedTxn(1, 2, 140, 3), 141)])
def test_markers_have_to_rise(path: Path, txn: AbortedTxn, least: int) -> None:
    index = filled(path) if least > BASE else opened(path)
    with pytest.raises(ValueError, match=f"at least {least}"):
        index.append(txn)
    index.close()


@pytest.mark.parametrize(("offset", "kept"), [(0, 0), (110, 0), (111, 1), (140, 2), (141, 3)])
def test_truncation_removes_markers_from_an_offset_on(path: Path, offset: int, kept: int) -> None:
    index = filled(path)
    index.truncate_to(offset)
    assert index.entries == TXNS[:kept]
    index.close()
    assert path.read_bytes() == packed(*TXNS[:kept])


def test_closed_index_takes_no_more(path: Path) -> None:
    index = filled(path)
    index.close()
    with pytest.raises(LogClosedError):
        index.append(AbortedTxn(9, 141, 150, 151))
    assert path.read_bytes() == packed(*TXNS)


BAD = [
    pytest.param(packed(*TXNS) + b"\0", 102, "size of an entry", id="part-of-an-entry"),
    pytest.param(packed(TXNS[0]) + packed(TXNS[1], version=1), 34, "version", id="version-1"),
    pytest.param(packed(TXNS[0], version=256), 0, "version", id="version-in-the-high-byte"),
    pytest.param(packed(AbortedTxn(1, 2, 99, 3)), 0, "last offset", id="below-the-segment"),
    pytest.param(packed(TXNS[0], TXNS[0]), 34, "last offset", id="entry-twice"),
]


@pytest.mark.parametrize(("content", "position", "message"), BAD)
def test_file_that_can_not_be_right_is_not_opened(path: Path, content: bytes, position: int, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CorruptIndexError, match=message) as caught:
        opened(path)
    assert (caught.value.position, caught.value.path) == (position, str(path))
    with pytest.raises(CorruptIndexError):
        decode_aborted_txns(content, base_offset=BASE, path="x")


def test_failed_append_leaves_no_part_of_an_entry(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(path)
    pwrite = os.pwrite

    def full(fd: int, data: Any, position: int) -> int:
        if len(data) == 34:
            return pwrite(fd, data[:10], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(env_module.os, "pwrite", full)
        with pytest.raises(StorageError) as caught:
            index.append(AbortedTxn(9, 141, 150, 151))
    assert (caught.value.errno, index.entries) == (errno.ENOSPC, TXNS)
    index.close()
    assert path.read_bytes() == packed(*TXNS)


def test_what_a_failed_sync_lost_is_written_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(path)

    def losing_sync(fd: int) -> None:
        os.pwrite(fd, bytes(102), 0)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(env_module.os, "fdatasync", losing_sync)
        with pytest.raises(StorageError):
            index.flush()
    index.close()
    assert path.read_bytes() == packed(*TXNS)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_flushed_survives_a_power_cut(seed: int) -> None:
    disk = SimulatedDisk()
    disk.make_directory("/t-0")
    index = TransactionIndexFile.open("/t-0/x.txnindex", base_offset=BASE, env=disk)
    for txn in TXNS:
        index.append(txn)
    index.flush()
    assert disk.after_cut(random.Random(seed)).state("/t-0") == {"x.txnindex": packed(*TXNS)}
    index.truncate_to(120)
    index.flush()
    assert disk.after_cut(random.Random(seed)).state("/t-0") == {"x.txnindex": packed(TXNS[0])}
