"""TransactionIndexFile: the aborted transactions whose abort marker is in one segment.

The file is created with the first entry. The entries are also kept in memory, since they are few.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from kstore.env import DEFAULT_ENV, Env, StrPath, WriteFile, split_path
from kstore.errors import CorruptIndexError, LogClosedError
from kstore.log.damage import corruption
from kstore.log.files.indexes import MAX_INDEX_BYTES
from kstore.types import MAX_OFFSET

TRANSACTION_INDEX_VERSION = 0
# Version, producer id, first offset, last offset, last stable offset.
ABORTED_TXN = struct.Struct(">hqqqq")
TRANSACTION_INDEX_ENTRY_SIZE = ABORTED_TXN.size


class AbortedTxn(NamedTuple):
    """An entry of a .txnindex file: the transaction's first offset, the offset of its abort marker, and the last stable
    offset after the marker.

    Source: Kafka AbortedTxn.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class StatedAborted(NamedTuple):
    """What the .txnindex of a segment states: its entries, by offset of the marker.

    complete_from: no abort marker of the segment at or above this offset lacks an entry; MAX_OFFSET if the file is
    missing or damaged, for the file of a segment without aborted transactions does not exist either.
    """

    entries: Sequence[AbortedTxn]
    complete_from: int


def encode_aborted_txn(txn: AbortedTxn) -> bytes:
    """Return the 34 bytes of an entry."""
    return ABORTED_TXN.pack(TRANSACTION_INDEX_VERSION, *txn)


def decode_aborted_txns(content: bytes, *, base_offset: int, path: str) -> tuple[AbortedTxn, ...]:
    """Return the entries of a .txnindex file.

    Raises: CorruptIndexError for an entry that is incomplete, of another version, with a last offset below the
        segment's base offset, or out of order.
    """
    txns: list[AbortedTxn] = []
    least = base_offset
    for position in range(0, len(content), TRANSACTION_INDEX_ENTRY_SIZE):
        left = len(content) - position
        if left < TRANSACTION_INDEX_ENTRY_SIZE:
            raise _corrupt(path, "size of an entry", position=position, expected=ABORTED_TXN.size, found=left)
        version, *numbers = ABORTED_TXN.unpack_from(content, position)
        txn = AbortedTxn(*numbers)
        if version != TRANSACTION_INDEX_VERSION:
            raise _corrupt(path, "version", position=position, expected=TRANSACTION_INDEX_VERSION, found=version)
        if txn.last_offset < least:
            expected = f"at least {least}"
            raise _corrupt(path, "last offset", position=position, expected=expected, found=txn.last_offset)
        least = txn.last_offset + 1
        txns.append(txn)
    return tuple(txns)


class TransactionIndexFile:
    """The .txnindex file of a segment that is being written; created by open.

    Attributes: complete_from (as in StatedAborted).
    Threads: one writer; entries from any thread.  Source: Kafka TransactionIndex.
    """

    def __init__(self, file: WriteFile | None, *, path: str, base_offset: int, env: Env) -> None:
        self.path = path
        self.base_offset = base_offset
        self._env = env
        self._file = file
        self._entries: list[AbortedTxn] = []
        self.complete_from = MAX_OFFSET if file is None else base_offset
        self._is_dirty = False
        self._is_written = True
        self._is_name_durable = True
        self._is_closed = False

    @classmethod
    def open(cls, path: StrPath, *, base_offset: int, env: Env = DEFAULT_ENV) -> TransactionIndexFile:
        """Open a file and read it; if it does not exist, the first append creates it.

        Raises: StorageError; CorruptIndexError as decode_aborted_txns.
        """
        name = env.absolute_path(path)
        if env.stat(name) is None:
            return cls(None, path=name, base_offset=base_offset, env=env)
        file = env.open_write(name)
        try:
            content = file.pread(min(file.size(), MAX_INDEX_BYTES), position=0)
            index = cls(file, path=name, base_offset=base_offset, env=env)
            index._entries += decode_aborted_txns(content, base_offset=base_offset, path=name)
        except BaseException:
            file.close()
            raise
        return index

    @property
    def entries(self) -> tuple[AbortedTxn, ...]:
        """The current entries, in the order of their markers."""
        return tuple(self._entries)

    def stated(self) -> StatedAborted:
        """Return the entries, to which later ones are added; a truncation removes some of them."""
        return StatedAborted(self._entries, self.complete_from)

    def continue_at(self, offset: int) -> None:
        """Note that everything from an offset on is appended from now on, each aborted transaction with its entry."""
        self.complete_from = min(self.complete_from, offset)

    @property
    def size_in_bytes(self) -> int:
        return len(self._entries) * TRANSACTION_INDEX_ENTRY_SIZE

    @property
    def last_offset(self) -> int:
        """The offset of the last abort marker, -1 if there is none."""
        return self._entries[-1].last_offset if self._entries else -1

    def append(self, txn: AbortedTxn) -> None:
        """Add a transaction and write it.

        Raises: ValueError if its last offset is not above that of the previous one, or below the segment's base offset;
            StorageError, with the index unchanged.
        """
        least = self.last_offset + 1 if self._entries else self.base_offset
        if txn.last_offset < least:
            raise ValueError(f"last_offset must be at least {least}, got {txn.last_offset}")
        file = self._made_file()
        self._is_dirty, self._is_written = True, False
        file.pwrite(encode_aborted_txn(txn), position=self.size_in_bytes)
        self._entries.append(txn)
        self._is_written = True

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose abort marker is at or after an offset.

        Raises: StorageError, with the entries kept.
        """
        self.continue_at(offset)
        self._keep(bisect_left(self._entries, offset, key=lambda txn: txn.last_offset))

    def flush(self) -> None:
        """Wait until the file and its name survive a power cut; no system call if nothing changed.

        Raises: StorageError; the next flush rewrites the entries after a failed flush or append.
        """
        if self._file is None or not self._is_dirty:
            return
        if not self._is_written:
            self._file.truncate(self.size_in_bytes)
            self._file.pwrite(b"".join(map(encode_aborted_txn, self._entries)), position=0)
        self._is_written = False
        self._file.sync()
        self._is_written = True
        if not self._is_name_durable:
            self._env.sync_directory(split_path(self.path)[0])
        self._is_dirty, self._is_name_durable = False, True

    def close(self) -> None:
        """Flush and close; a second call does nothing.

        Raises: StorageError; the file is closed in any case.
        """
        if self._is_closed:
            return
        try:
            self.flush()
        finally:
            self.close_handlers()

    def park(self) -> None:
        """Flush the file and give its descriptor up; the next change opens it again.  Raises: StorageError."""
        self.flush()
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def close_handlers(self) -> None:
        """Close the file without flushing."""
        self._is_closed = True
        if self._file is not None:
            self._file.close()

    def _made_file(self) -> WriteFile:
        if self._is_closed:
            raise LogClosedError(f"{self.path} was closed before the call", path=self.path)
        if self._file is None:
            self._file = self._env.open_write(self.path)
            self._is_name_durable = False
            # Somebody removed the file while it was parked: the next flush writes all of it.
            self._is_written = not (self._file.is_new and self._entries)
        return self._file

    def _keep(self, count: int) -> None:
        if count < len(self._entries):
            file, self._is_dirty = self._made_file(), True
            file.truncate(count * TRANSACTION_INDEX_ENTRY_SIZE)
        del self._entries[count:]


def _corrupt(path: str, what: str, *, position: int, expected: object, found: object) -> CorruptIndexError:
    what = f"{what} of the aborted transaction"
    return corruption(CorruptIndexError, what, path=path, position=position, expected=expected, found=found)
