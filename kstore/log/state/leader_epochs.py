"""LeaderEpochCache: the first offset of each leader epoch of a log, stored in its leader-epoch-checkpoint."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from kstore._lazy import lazy_logger
from kstore.env import DEFAULT_ENV, Env
from kstore.log.files.checkpoints import EpochEntry, read_leader_epoch_checkpoint, write_leader_epoch_checkpoint
from kstore.types import NO_PARTITION_LEADER_EPOCH

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_EPOCH = attrgetter("epoch")
_START_OFFSET = attrgetter("start_offset")
_logger = lazy_logger("kstore.log")


class EpochEndOffset(NamedTuple):
    """Where an epoch ends: the offset at which the next one starts, or the log end offset; both fields -1 if
    unknown.
    """

    epoch: int
    end_offset: int


_UNKNOWN = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochCache:
    """Leader epochs and their start offsets, both strictly increasing; every change is durable when the call returns.

    Args: path: of the leader-epoch-checkpoint, which need not exist; None to store nothing on disk.
    Attributes: entries.
    Raises: CorruptCheckpointError for a malformed file; StorageError.
    Threads: one writer, any number of readers.
    Source: Kafka LeaderEpochFileCache.
    """

    def __init__(self, path: str | None, env: Env = DEFAULT_ENV) -> None:
        self.entries: tuple[EpochEntry, ...] = ()
        self._path = path
        self._env = env
        for entry in (path is not None and read_leader_epoch_checkpoint(path, env)) or ():
            if self._is_update_needed(entry):
                self.entries = (*self._entries_below(entry), entry)

    def detach(self) -> None:
        """Keep later changes in memory alone."""
        self._path = None

    @property
    def latest_entry(self) -> EpochEntry | None:
        entries = self.entries
        return entries[-1] if entries else None

    @property
    def latest_epoch(self) -> int:
        """The epoch of the latest entry, NO_PARTITION_LEADER_EPOCH (-1) if there is none."""
        latest = self.latest_entry
        return NO_PARTITION_LEADER_EPOCH if latest is None else latest.epoch

    def assign(self, epoch: int, *, start_offset: int) -> bool:
        """Record that offsets from start_offset on belong to `epoch`; return whether that was new.

        Removes entries whose epoch or start offset is not below that of the new one.
        Raises: ValueError for a negative number; StorageError, with nothing changed.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch and start_offset must not be negative, got {epoch} and {start_offset}")
        entry = EpochEntry(epoch, start_offset)
        if not self._is_update_needed(entry):
            return False
        kept = self._entries_below(entry)
        removed = self.entries[len(kept) :]
        if len(removed) > 1 or (removed and removed[0].start_offset != start_offset):
            _logger.warning("%s replaces %s in %s", entry, removed, self._path)
        self._replace((*kept, entry))
        return True

    def end_offset_for(self, epoch: int, *, log_end_offset: int) -> EpochEndOffset:
        """Return the largest known epoch that is <= `epoch`, and where it ends.

        An epoch below all known ones is returned as it is, with the start offset of the first known one.
        Source: Kafka LeaderEpochFileCache.endOffsetFor.
        """
        entries = self.entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return _UNKNOWN
        if epoch == entries[-1].epoch:
            return EpochEndOffset(epoch, log_end_offset)
        above = bisect_right(entries, epoch, key=_EPOCH)
        return EpochEndOffset(entries[above - 1].epoch if above else epoch, entries[above].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch of the record at an offset, None if it is below all known epochs."""
        return epoch_of_offset(self.entries, offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that start at or above end_offset.

        Raises: StorageError, with nothing changed.
        """
        entries = self.entries
        kept = len(entries)
        while kept and entries[kept - 1].start_offset >= end_offset:
            kept -= 1
        if kept < len(entries):
            self._replace(entries[:kept])

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that start at or below start_offset, except the last of them, which then starts there.

        Raises: StorageError, with nothing changed.
        """
        entries = self.entries
        gone = bisect_right(entries, start_offset, key=_START_OFFSET)
        if gone:
            first = EpochEntry(entries[gone - 1].epoch, start_offset)
            if gone > 1 or entries[0] != first:
                self._replace((first, *entries[gone:]))

    def restore(self, entries: tuple[EpochEntry, ...]) -> None:
        """Restore earlier entries after an append of later ones failed.

        Raises: StorageError, with nothing changed.
        """
        if entries != self.entries:
            self._replace(entries)

    def store_at(self, path: str, *, is_stored: bool) -> None:
        """Keep the entries in a file from now on. is_stored: the file has them.

        Raises: StorageError.
        """
        self._path = path
        if not is_stored:
            self._replace(self.entries)

    def clear(self) -> None:
        """Remove all epochs, as an append of magic 0 or 1 does.

        Raises: StorageError, with nothing changed.
        """
        if self.entries:
            self._replace(())

    def _is_update_needed(self, entry: EpochEntry) -> bool:
        latest = self.latest_entry
        return latest is None or entry.epoch != latest.epoch or entry.start_offset < latest.start_offset

    def _entries_below(self, entry: EpochEntry) -> tuple[EpochEntry, ...]:
        kept = len(self.entries)
        while kept and not rises(self.entries[kept - 1], entry):
            kept -= 1
        return self.entries[:kept]

    def _replace(self, entries: tuple[EpochEntry, ...]) -> None:
        if self._path is not None:
            write_leader_epoch_checkpoint(self._path, entries, self._env)
        self.entries = entries


def rises(before: EpochEntry, after: EpochEntry) -> bool:
    """Whether two neighbours of a checkpoint are in order."""
    return before.epoch < after.epoch and before.start_offset < after.start_offset


def epoch_of_offset(entries: Sequence[EpochEntry], offset: int) -> int | None:
    """Return the epoch of the record at an offset, by rising entries; None if it is below all of them."""
    slot = bisect_right(entries, offset, key=_START_OFFSET)
    return entries[slot - 1].epoch if slot else None
