"""Snapshots of producer state: the content of a .snapshot file, read and written byte for byte as Kafka does.

Format: docs/format.md#producer-snapshot. The file is named by the offset after the last batch it includes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from kstore._core import crc32c
from kstore.env import DEFAULT_ENV, Env
from kstore.errors import CorruptSnapshotError, StorageError
from kstore.log.files.checkpoints import keep_file, replace_file

SNAPSHOT_VERSION = 1
SNAPSHOT_OVERHEAD = 10
SNAPSHOT_ENTRY_SIZE = 46
# About 1.4 million producers.
MAX_SNAPSHOT_BYTES = 64 * 1024 * 1024

_HEADER = struct.Struct(">hIi")
_CRC_POSITION = 2
_CRC_START = 6
_ENTRY = struct.Struct(">qhiqiqiq")

_LEAST_TABLE_SIZE = 16


class ProducerSnapshotEntry(NamedTuple):
    """One producer in a snapshot, with only its last batch; -1 for missing values.

    last_offset is that of the last data batch, whose first offset is last_offset - offset_delta.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def decode_snapshot(content: bytes, *, path: str | None = None) -> list[ProducerSnapshotEntry]:
    """Return the entries of a .snapshot file, in the order of the file.

    Raises: CorruptSnapshotError for an unknown version, a size that does not match the entry count, or a wrong CRC.
    Source: Kafka ProducerStateManager.readSnapshot.
    """
    size = len(content)
    if size < SNAPSHOT_OVERHEAD:
        raise _corrupt(path, 0, "size of the file", expected=f"at least {SNAPSHOT_OVERHEAD}", found=size)
    version, stored_crc, count = _HEADER.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        raise _corrupt(path, 0, "version", expected=SNAPSHOT_VERSION, found=version)
    found_crc = crc32c(memoryview(content)[_CRC_START:])
    if found_crc != stored_crc:
        raise _corrupt(path, _CRC_POSITION, "CRC", expected=f"{stored_crc:#010x}", found=f"{found_crc:#010x}")
    if (size - SNAPSHOT_OVERHEAD) % SNAPSHOT_ENTRY_SIZE or (size - SNAPSHOT_OVERHEAD) // SNAPSHOT_ENTRY_SIZE != count:
        expected = f"{SNAPSHOT_OVERHEAD} + {SNAPSHOT_ENTRY_SIZE} for each of {count} entries"
        raise _corrupt(path, _CRC_START, "size of the file", expected=expected, found=size)
    return [ProducerSnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(memoryview(content)[SNAPSHOT_OVERHEAD:])]


def encode_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """Return the bytes of a .snapshot file with the entries in the given order.

    Raises: ValueError for a value out of range of its field.
    """
    try:
        packed = b"".join([_ENTRY.pack(*entry) for entry in entries])
        header = bytearray(_HEADER.pack(SNAPSHOT_VERSION, 0, len(packed) // SNAPSHOT_ENTRY_SIZE))
    except struct.error as error:
        raise ValueError(f"a field of a snapshot entry is beyond its type: {error}") from None
    crc = crc32c(packed, crc32c(memoryview(header)[_CRC_START:]))
    return _HEADER.pack(SNAPSHOT_VERSION, crc, len(packed) // SNAPSHOT_ENTRY_SIZE) + packed


def read_snapshot(path: str, env: Env = DEFAULT_ENV) -> list[ProducerSnapshotEntry]:
    """Read a .snapshot file.

    Raises: CorruptSnapshotError as decode_snapshot, and for more than MAX_SNAPSHOT_BYTES; StorageError.
    """
    try:
        content = env.read_file(path, max_bytes=MAX_SNAPSHOT_BYTES)
    except StorageError as error:
        if error.errno is None:
            raise CorruptSnapshotError(f"corrupt snapshot {path}: {error}", path=path, position=0) from error
        raise
    return decode_snapshot(content, path=path)


def write_snapshot(
    path: str, entries: Iterable[ProducerSnapshotEntry], env: Env = DEFAULT_ENV, *, keeps_equal: bool = False
) -> None:
    """Write or replace a .snapshot file. Unlike Kafka's, after a power cut it is either complete or unchanged.

    Args: keeps_equal: as keep_file, for a file whose name is durable.
    Raises: StorageError.
    """
    content = encode_snapshot(entries)
    if not (keeps_equal and keep_file(path, content, env)):
        replace_file(path, content, env)


def hash_table_size(count: int, *, size: int = _LEAST_TABLE_SIZE) -> int:
    """Return the buckets of a java.util.HashMap that started with `size` and has held `count` keys; it never
    shrinks.
    """
    while count > size * 3 // 4:
        size *= 2
    return size


def in_hash_order(producer_ids: Iterable[int], *, table_size: int) -> list[int]:
    """Return producer ids, given in insertion order, in the iteration order of a java.util.HashMap<Long, _>.

    Kafka writes snapshots in this order since 2.x. A bucket of 8 or more keys, which Java turns into a tree, may
    differ.
    """

    def bucket(producer_id: int) -> int:
        folded = (producer_id ^ (producer_id >> 32)) & 0xFFFFFFFF
        return (folded ^ (folded >> 16)) & (table_size - 1)

    return sorted(producer_ids, key=bucket)


def _corrupt(path: str | None, position: int, what: str, *, expected: object, found: object) -> CorruptSnapshotError:
    reason = f"{what} of a producer snapshot: expected {expected}, found {found}"
    where = "memory" if path is None else path
    return CorruptSnapshotError(
        f"wrong {reason} at position {position} of {where}",
        path=path,
        position=position,
        reason=f"wrong {reason}",
        expected=expected,
        found=found,
    )


def contradiction_in(entry: ProducerSnapshotEntry, offset: int) -> str | None:
    """Return why an entry is impossible in a snapshot at that offset, or None."""
    if not -1 <= entry.last_offset < offset:
        return f"last offset of producer {entry.producer_id}: expected less than {offset}, found {entry.last_offset}"
    if not -1 <= entry.current_txn_first_offset < offset:
        found = entry.current_txn_first_offset
        return f"open transaction of producer {entry.producer_id}: expected less than {offset}, found {found}"
    if entry.producer_id < 0 or not 0 <= entry.offset_delta <= max(entry.last_offset, 0):
        return f"producer {entry.producer_id} with an offset delta of {entry.offset_delta}"
    return None
