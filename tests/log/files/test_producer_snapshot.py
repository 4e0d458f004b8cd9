"""Goal: a .snapshot is read to the last field, written with the same bytes, and refused when anything in it is wrong.
Method: bytes packed by hand with a CRC of the tests' own; one damage at a time; orders that java.util.HashMap gave."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kstore.errors import CorruptSnapshotError, StorageError
from kstore.log.files.snapshots import (
    MAX_SNAPSHOT_BYTES,
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
    hash_table_size,
    in_hash_order,
    read_snapshot,
    write_snapshot,
)
from tests.reference.codec import crc32c

ENTRIES = [
    ProducerSnapshotEntry(2**62, 7, 11, 99, 3, 1_700_000_000_000, 4, 95),
    ProducerSnapshotEntry(1, 0, -1, -1, 0, -1, -1, -1),
    ProducerSnapshotEntry(2**63 - 1, 2**15 - 1, 2**31 - 1, 2**63 - 1, 2**31 - 1, 2**63 - 1, 2**31 - 1, 2**63 - 1),
]


def packed(entries: list[ProducerSnapshotEntry], *, version: int = 1, count: int | None = None) -> bytes:
    body = struct.pack(">i", len(entries) if count is None else count)
    for entry in entries:
        body += struct.pack(">q", entry.producer_id)
        body += struct.pack(">h", entry.producer_epoch)
        body += struct.pack(">i", entry.last_sequence)
        body += struct.pack(">q", entry.last_offset)
        body += struct.pack(">i", entry.offset_delta)
        body += struct.pack(">q", entry.timestamp_ms)
        body += struct.pack(">i", entry.coordinator_epoch)
        body += struct.pack(">q", entry.current_txn_first_offset)
    return struct.pack(">hI", version, crc32c(body)) + body


@pytest.mark.parametrize("count", range(4))
def test_entries_are_read_and_written_in_the_order_of_the_file(tmp_path: Path, count: int) -> None:
    content = packed(ENTRIES[:count])
    assert len(content) == 10 + 46 * count
    assert decode_snapshot(content) == ENTRIES[:count]
    assert encode_snapshot(ENTRIES[:count]) == content
    path = tmp_path / "00000000000000000100.snapshot"
    write_snapshot(str(path), ENTRIES[:count])
    assert path.read_bytes() == content
    assert read_snapshot(str(path)) == ENTRIES[:count]
    assert list(tmp_path.iterdir()) == [path]


def test_shorter_snapshot_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000100.snapshot")
    write_snapshot(path, ENTRIES)
    write_snapshot(path, ENTRIES[:1])
    assert read_snapshot(path) == ENTRIES[:1]


DAMAGES = [
    pytest.param(b"", 0, "size of the file", id="empty"),
    pytest.param(packed(ENTRIES)[:9], 0, "size of the file", id="nine-bytes"),
    pytest.param(packed(ENTRIES, version=0), 0, "version", id="version-0"),
    pytest.param(packed(ENTRIES, version=2), 0, "version", id="version-2"),
    pytest.param(packed(ENTRIES)[:-1], 2, "CRC", id="short"),
    pytest.param(packed(ENTRIES) + b"\0", 2, "CRC", id="a-byte-more"),
    pytest.param(packed(ENTRIES[:1], count=2), 6, "size of the file", id="count-too-large"),
    pytest.param(packed(ENTRIES[:2], count=1), 6, "size of the file", id="count-too-small"),
    pytest.param(packed(ENTRIES[:1], count=-1), 6, "size of the file", id="negative-count"),
    pytest.param(packed([], count=2**31 - 1), 6, "size of the file", id="count-of-2g"),
    pytest.param(bytes(56), 0, "version", id="zeros"),
]


@pytest.mark.parametrize(("content", "position", "reason"), DAMAGES)
def test_damaged_snapshot_is_refused_with_its_place(tmp_path: Path, content: bytes, position: int, reason: str) -> None:
    path = tmp_path / "00000000000000000100.snapshot"
    path.write_bytes(content)
    with pytest.raises(CorruptSnapshotError, match=reason) as caught:
        read_snapshot(str(path))
    assert (caught.value.path, caught.value.position) == (str(path), position)
    assert caught.value.reason in str(caught.value)


def test_every_flipped_bit_is_found() -> None:
    content = packed(ENTRIES)
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(damaged))


def test_snapshot_beyond_all_reason_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.snapshot"
    with path.open("wb") as file:
        file.truncate(MAX_SNAPSHOT_BYTES + 1)
    with pytest.raises(CorruptSnapshotError, match="larger than the limit"):
        read_snapshot(str(path))


def test_missing_snapshot_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        read_snapshot(str(tmp_path / "00000000000000000100.snapshot"))


def test_field_beyond_its_type_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond its type"):
        encode_snapshot([ENTRIES[0]._replace(producer_epoch=2**15)])


# The first is in the reference of Kafka's formats; the others follow from java.util.HashMap's documented buckets.
ORDERS = [
    pytest.param([5, 1, 1000, 17, 33, 2**33], [1, 17, 33, 2**33, 5, 1000], id="mixed"),
    pytest.param([3, 2, 1, 0], [0, 1, 2, 3], id="small"),
    pytest.param([16, 0, 32], [16, 0, 32], id="one-bucket-in-the-order-they-came"),
    pytest.param([*range(12), 16], [*range(12), 16], id="thirteen-double-the-table"),
    pytest.param([*range(11), 16], [0, 16, *range(1, 11)], id="twelve-do-not"),
]


@pytest.mark.parametrize(("ids", "expected"), ORDERS)
def test_order_is_that_of_a_java_hash_map(ids: list[int], expected: list[int]) -> None:
    assert in_hash_order(ids, table_size=hash_table_size(len(ids))) == expected


@pytest.mark.parametrize(("count", "size"), [(0, 16), (12, 16), (13, 32), (24, 32), (25, 64), (96, 128), (97, 256)])
def test_table_doubles_when_three_quarters_are_full(count: int, size: int) -> None:
    assert hash_table_size(count) == size


def test_table_never_shrinks() -> None:
    assert hash_table_size(1, size=64) == 64
